"""Files, paths, errors, secrets, plug-ins, processes, the scheduler (Slurm); imports no other room."""
