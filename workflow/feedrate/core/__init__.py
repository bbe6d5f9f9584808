"""Files, paths, errors, plug-ins, processes, the Slurm client; imports no other room."""
