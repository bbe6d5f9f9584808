"""What came out: records and their checks, statistics, claims and verdicts."""
