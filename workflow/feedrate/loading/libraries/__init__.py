"""Loader libraries: plug-ins that make a run's batches in place of torch's DataLoader.

There is none here; `loader.library: torch` needs no file. Another distribution adds some by an
entry point (core/plugins.py), such as extras/loaders. Each is one file. Its constants are read
without importing it; FORMS and PACKAGES are required.

PACKAGES         the distributions that it needs
INSTALL          the command that installs them
SYSTEM_PACKAGES  what their installation needs of Debian
LOADS            by form, a package of Debian, its shared library, and the versions that may be used
FORMS            "same" and "best", or one of them, each with its values of `loader.decode`, where
                 "device" is an NVIDIA GPU; without "reference" it reads files in its own way
OWN_ORDER        True: it gives each row once per epoch, but in an order of its own
LEAST_WORKERS    the fewest `loader.workers`; missing: 0

The package that holds the files has a module `_feed` with a `LibraryPath(settings, pin_memory=…)`:
a `LoadingPath` for the library that the settings name. Raises UnsupportedError if it is not
installed.
"""
