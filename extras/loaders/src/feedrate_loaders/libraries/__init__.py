"""The loader libraries, one file each: they make a run's batches in place of torch's DataLoader.

`feedrate.loading.libraries` lists the constants that each declares. One more is for certificates:

SILENT  the forms whose decoding records no stage

For each of its forms a file defines a function of that name, from a `Work` (`_feed.py`) to batches:
`same` moves the pixels that the run's own decode function makes, and `best` decodes as the
library's documentation does. Each batch is a `Made`, with pixels in uint8 or float32 of shape
(n, 3, side, side). `_feed.py` adds the tokens and checks that the work is equal.
"""
