"""Log formats, one file each. `feedrate.logs.reading` finds them by these constants and functions:

- `IMPORTS`: patterns of the names of files that other people's runs leave.
- `read(path)`: what such a file says, as `Found`, one for each run. Raises LogError.
- `FILES`, of the formats of a Trainer, which our own runs leave: glob patterns in its folder.
- `ORDER`, of these: smaller numbers are read first, and their figures take precedence.
"""
