"""Readers of raw logs that other programs write: what a Trainer reports and what is printed.

One file per format in `formats/`. Does not know what becomes of the figures that it reads.
"""
