"""The measured data path: from JPEG files and captions to batches."""
