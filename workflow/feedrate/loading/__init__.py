"""The measured path from an image file to a batch on the device. Knows neither models nor jobs."""
