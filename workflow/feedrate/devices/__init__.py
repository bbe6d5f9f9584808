"""Everything about a kind of device: detection, launch variables, refusals, memory, energy,
synchronisation; launchers, placement on cores, software, host.

Does not know what runs on a device.
"""
