"""What would run, where, and for how long: read from a dry-run, and estimated."""
