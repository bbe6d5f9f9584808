"""Models built with seeded weights, on one thread."""

import pytest
import torch

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import build


@pytest.fixture
def make(labelled):
    """Build a model with seeded weights: `make("vit", "tiny", attention="sdpa")`."""

    def make(name, size="tiny", *, max_tokens=16, **settings):
        torch.manual_seed(1)
        return build(
            ModelSettings(name=name, size=size, **settings),
            LoaderSettings(max_tokens=max_tokens),
            labelled,
        )

    return make
