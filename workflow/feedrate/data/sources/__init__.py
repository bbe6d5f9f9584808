"""Where datasets come from: one module for each source, named as its tag in config.yaml.

`fetch(name, settings, raw)` returns a Fetched: rows, and checked image files, which it may write
under `raw`. The settings of the sources here are typed in config/workflow.py, because planning
checks them. Another source declares its keys itself, as
`SETTINGS = {"path": ("str", "Folder of the images."), "rows": ("int", "Most rows.", 100)}`.
"""
