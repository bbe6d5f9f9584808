"""Readers of raw logs that others write, one file per format.

Does not know what becomes of the figures that it reads.
"""
