"""The loader libraries, one file each: they make a run's batches in place of torch's DataLoader.

feedrate reads the constants of a file without importing it; FORMS and PACKAGES are required.

PACKAGES         the distributions that it needs
INSTALL          the command that installs them
SYSTEM_PACKAGES  what their installation needs of Debian
LOADS            by form, a package of Debian, its shared library, and the versions that may be used
FORMS            "same" and "best", or one of them, each with its values of `loader.decode`, where
                 "device" is an NVIDIA GPU; without "reference" it reads files in its own way
OWN_ORDER        True: it gives each row once per epoch, but in an order of its own
LEAST_WORKERS    the fewest `loader.workers`; missing: 0
SILENT           the forms whose decoding records no stage, for certificates

The package that holds the files has a module `_feed` with a `LibraryPath(settings, pin_memory=…)`:
a `LoadingPath` for the library that the settings name. Raises UnsupportedError if it is not
installed. Its module `_rules` says what planning checks: `library_faults(loader)`, settings that
the library does not have, and `missing_packages(library, form)`, with the command to install them.

For each of its forms a file defines a function of that name, from a `Work` (`_feed.py`) to batches:
`same` moves the pixels that the run's own decode function makes, and `best` decodes as the
library's documentation does. Each batch is a `Made`, with pixels in uint8 or float32 of shape
(n, 3, side, side). `_feed.py` adds the tokens and checks that the work is equal.
"""
