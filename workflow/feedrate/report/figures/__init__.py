"""Kinds of figures. A file declares `KINDS`: the names of its kinds with their places in the
overview, a literal, because it is read without importing the file. A function of that name turns
settings and result rows into a picture (`report/figure.py`)."""
