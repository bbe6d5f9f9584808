"""The models and their layers, checkpoints, FLOPs and memory. Knows neither loaders nor jobs."""
