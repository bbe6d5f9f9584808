"""Stand-in for the Gaudi media pipeline; see README.md."""
