"""Files, paths, errors, plug-ins, processes and the Slurm client, for all rooms.

Imports no other room.
"""
