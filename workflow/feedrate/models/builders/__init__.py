"""The models: one file each that builds one (see `models/build.py`)."""
