"""The kinds of devices (detection, launch variables, refusals, memory, energy, synchronisation),
the launchers, the host, and the placement of ranks on its cores."""
