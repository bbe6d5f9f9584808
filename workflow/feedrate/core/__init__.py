"""Files, paths, errors, secrets, plug-ins, processes, the scheduler; imports no other room."""
