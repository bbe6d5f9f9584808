"""The decoders: one file each that turns JPEG files into pixels (see `loading/levels.py`)."""
