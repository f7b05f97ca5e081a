"""Many runs, one machine or many: who drives which run. A run's truth stays in its state (D78)."""
