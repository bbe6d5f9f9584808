"""Readers of what a training job leaves behind: events, Trainer files, TensorBoard, plain text."""


class LogError(Exception):
    """A log that does not hold what it must; the message names the file and the line."""
