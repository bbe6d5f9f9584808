"""What `python -m feedrate` can be told to do, a file each."""
