"""feedrate: how fast can an accelerator be fed and trained, and is the published number true?"""

__version__ = "0.1.0"
