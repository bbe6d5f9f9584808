"""The measured programs.

The parent side starts, watches, locks and finishes a run (supervisor, processes, workplace, outcome,
earlier). The child side trains, infers or drains loaders, and writes events. Does not know
results, reports or Snakemake.
"""
