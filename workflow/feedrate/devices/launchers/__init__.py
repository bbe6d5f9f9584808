"""The launchers: one file each that starts a job's processes (see `devices/launch.py`)."""
