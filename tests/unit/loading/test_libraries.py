"""Other loader libraries: equal work in every batch, and errors where it is not equal."""

from types import SimpleNamespace

import pytest
import torch

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES, library_faults, missing_packages
from feedrate.core import plugins
from feedrate.devices.base import UnsupportedError
from feedrate.jobs.ceilings import EndlessBatches
from feedrate.loading.libraries._feed import LibraryPath, UnequalWorkError
from feedrate.loading.path import HostPath, distance

FORMS = plugins.declared(LIBRARIES, "FORMS")
OWN_ORDER = plugins.declared(LIBRARIES, "OWN_ORDER")
ALL = [(name, form) for name, forms in FORMS.items() for form in forms]


def settings(library, form="same", **changes):
    best = {"form": "best"} if form == "best" else {}
    changes = {"decode": "host", "workers": 2, "max_tokens": 10, **best, **changes}
    return LoaderSettings(library=library, **changes)


def opened(library, form="same", **changes):
    if why := missing_packages(library):
        pytest.skip(why)
    return LibraryPath(settings(library, form, **changes), pin_memory=False)


@pytest.fixture
def pairs(make_pairs):
    return make_pairs(decode="host")


@pytest.mark.parametrize(("library", "form"), ALL)
def test_an_epoch_has_each_row_once_and_the_same_tokens_as_ours(library, form, pairs):
    path, rows = opened(library, form), len(pairs)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).tolist()
    asked = [order[start : start + 4] for start in range(0, rows - 3, 4)]
    batches = list(path._feed(pairs, asked))
    assert len(batches) == len(asked)
    found = []
    for batch in batches:
        assert batch["return_loss"]
        for tokens, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
            same = (pairs.input_ids == tokens).all(1) & (pairs.attention_mask == mask).all(1)
            assert same.any()
        found += batch["pixel_values"]
    if form not in OWN_ORDER.get(library, ()):
        expected = [pairs.pixels(numbers) for numbers in asked]
        difference = torch.stack(found).float() - torch.cat(expected).float()
        assert difference.abs().mean() < (0.01 if form == "same" else 6)


@pytest.mark.parametrize(("library", "form"), ALL)
def test_its_pixels_are_compared_with_the_references(library, form, pairs):
    found = distance(pairs, opened(library, form))
    ours = distance(pairs, HostPath(settings("torch"), pin_memory=False))
    if form == "same":
        assert found.mean_abs_diff == pytest.approx(ours.mean_abs_diff, rel=0.5)
    assert found.worst_abs_diff < 20
