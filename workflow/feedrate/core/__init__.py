"""Files, paths, errors, plug-ins, processes, the scheduler (Slurm); imports no other room."""
