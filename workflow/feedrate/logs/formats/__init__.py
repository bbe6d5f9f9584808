"""Log formats, one file each. `feedrate.logs.trainer` finds the formats of a Trainer, which our own
runs leave, and `feedrate.logs.found` all of them, by these constants and functions:

- `ORDER`: formats with smaller numbers are read first, and their figures take precedence.
- `FILES`: glob patterns of the files in a Trainer's folder.
- `metrics(folder)`: the training's metrics under the Trainer's own keys.
- `evaluations(folder)`, optional: pairs of a split and its metrics.
- `IMPORTS`: patterns of the names of files that other people's runs leave.
- `read(path)`: what such a file says, as `Found`, one for each run. Raises LogError.
"""
