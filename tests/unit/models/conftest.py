"""Models built with seeded weights, on one thread."""

import pytest
import torch

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import build, build_bare


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


@pytest.fixture
def make_bare(labelled):
    """Build a model without memory for its weights."""

    def make(name, size, *, max_tokens=16, **settings):
        loader = LoaderSettings(max_tokens=max_tokens)
        return build_bare(ModelSettings(name=name, size=size, **settings), loader, labelled)

    return make
