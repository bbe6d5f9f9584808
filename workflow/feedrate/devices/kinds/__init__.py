"""The device kinds: one file each, with everything of its kind (see `devices/base.py`)."""
