"""Loader libraries for feedrate, a table of what their authors claim, and feed certificates.

The core imports this module when it looks for plug-ins, so it imports nothing.
"""

__version__ = "0.1.0"
