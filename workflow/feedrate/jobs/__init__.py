"""The measured programs.

The parent side starts, watches and finishes a run (supervisor, processes, workplace, outcome,
tries). The child side trains, infers or drains loaders, and writes events. Does not know results,
reports or Snakemake.
"""
