"""Pixel statistics that models were made for, by channel: mean and standard deviation."""

from typing import NamedTuple


class PixelStatistics(NamedTuple):
    """What images are normalised with."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CLIP = PixelStatistics(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)
"""CLIP's, which the image processors of BridgeTower and FLAVA use too."""

IMAGENET = PixelStatistics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""ImageNet-1K's, which recipes of image classification use."""
