"""The measured path from an image file to a batch on the device.

Owns the dataset, the workers, the decoders and the transfer. Does not know models or jobs.
"""
