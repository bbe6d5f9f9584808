"""The loader libraries, one file each: they make a run's batches in place of torch's DataLoader.

Each file declares these constants, read without importing it. FORMS and PACKAGES are required.

PACKAGES         the distributions that it needs; requirements/loaders/NAME.lock pins them
SYSTEM_PACKAGES  what their installation needs of Debian
LOADS            by form, a package of Debian, its shared library, and the versions that may be used
FORMS            "same" and "best", or one of them, each with its values of `loader.decode`, where
                 "device" is an NVIDIA GPU; without "reference" it reads files in its own way
OWN_ORDER        True: it gives each row once per epoch, but in an order of its own
LEAST_WORKERS    the fewest `loader.workers`; missing: 0
SILENT           the forms whose decoding records no stage

For each of its forms it defines a function of that name, from a `Work` (`_feed.py`) to batches:
`same` moves the pixels that the run's own decode function makes, and `best` decodes as the
library's documentation does. Each batch is a `Made`, with pixels in uint8 or float32 of shape
(n, 3, side, side). `_feed.py` adds the tokens and checks that the work is equal.
"""
