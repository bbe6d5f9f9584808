"""The one job entry of all devices, and the meter."""
