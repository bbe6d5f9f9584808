"""Typed, strict configuration: studies, devices, datasets, published numbers, and the plan they make."""
