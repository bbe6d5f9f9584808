"""The measured programs.

The parent side starts, watches and finishes a run (supervisor, processes, workplace, outcome). The
child side trains or infers, and writes events. Does not know results, reports or Snakemake.
"""
