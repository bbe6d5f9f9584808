"""Readers of what a training job leaves behind: events, Trainer files, TensorBoard, plain text."""
