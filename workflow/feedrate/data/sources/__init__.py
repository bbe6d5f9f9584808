"""The sources of datasets: one module each, named like its tag in config.yaml.

`fetch(name, settings, raw)` returns a Fetched: rows, and checked image files, which it may write
under `raw`. `config/workflow.py` declares the types of the settings, so planning checks them.
"""
