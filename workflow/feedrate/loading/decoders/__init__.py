"""loading.decoders."""
