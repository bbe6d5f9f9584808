"""The input of Snakemake: targets, params, digests of code, resources, attempts.

Owns the lock of the driver, the checks before the first job, and the record of lost runs. It is
parsed in every job, so it imports no torch, pandas or matplotlib.
"""
