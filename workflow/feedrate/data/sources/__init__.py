"""The sources of datasets: one module each, named like its tag in config.yaml.

`fetch(name, settings, raw)` returns a Fetched: rows, and checked image files, which it may write
under `raw`. Planning checks the settings of the sources here, so config/workflow.py declares their
types. Another source declares its keys itself, as
`SETTINGS = {"path": ("str", "Folder of the images."), "rows": ("int", "Most rows.", 100)}`.
"""
