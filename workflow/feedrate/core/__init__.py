"""Files, paths, errors, processes and the Slurm client: what every room may use.

Does not know the domain.
"""
