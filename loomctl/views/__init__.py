"""One run, shown: at a glance, why it came where it is, as a report, as a dump."""
