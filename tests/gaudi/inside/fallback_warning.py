"""Gives up decoding on the device as the library's example script does: with its logger's words."""

import json
import sys

from optimum.utils import logging

sys.stderr = sys.stdout
logger = logging.get_logger("clip_mediapipe_dataloader")
try:
    import habana_frameworks.mediapipe  # noqa: F401
except ImportError as error:
    logger.warning(f"Using Pytorch native dataloader because: {error}.")
print(json.dumps("ended"))
