"""The input of Snakemake: the graph of the workflow, identities of runs, folders, resources.

Owns the lock of the driver and the checks before the first job. It is parsed in every job, so it
imports no torch, pandas or matplotlib.
"""
