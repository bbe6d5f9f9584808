"""Log formats, one file each. `feedrate.logs.trainer` finds them by these constants and functions:

- `ORDER`: formats with smaller numbers are read first, and their figures take precedence.
- `FILES`: glob patterns of the files in a Trainer's folder.
- `metrics(folder)`: the training's metrics under the Trainer's own keys.
- `evaluations(folder)`, optional: pairs of a split and its metrics.
"""
