"""Typed, strict configuration: studies, devices, datasets, numbers, and their plan."""
