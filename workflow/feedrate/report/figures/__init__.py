"""Figures, one kind a file: each draws from rows and settings, and knows nothing of files."""
