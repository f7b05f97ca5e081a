"""An unattended assistant: it is started, watched, judged and ended, and its run goes on (D73-D77)."""
