"""Tables of a study. A file registers its own in `TABLES` (`report/table.py`)."""
