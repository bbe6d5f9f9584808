"""Everything about a kind of device (detection, launch variables, refusals, memory, energy,
synchronisation), the launchers, the host, and the placement of ranks on its cores.

Imports nothing of the jobs that run on a device.
"""
