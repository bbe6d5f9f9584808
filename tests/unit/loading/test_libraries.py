"""Other loader libraries: equal work in every batch, and errors where it is not equal."""

import copy
import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES, library_faults, missing_packages
from feedrate.core import plugins
from feedrate.data.manifest import DataError
from feedrate.devices.base import UnsupportedError
from feedrate.loading import stages
from feedrate.loading.libraries._feed import LibraryPath, UnequalWorkError
from feedrate.loading.path import HostPath, distance

ROOT = Path(__file__).resolve().parents[3]
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
    batches = list(path._complete(pairs, asked))
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
        # FFCV averages areas, which at 32 px is far from bicubic.
        limits = {"same": 0.01, "best": 12 if library == "ffcv" else 6}
        assert difference.abs().mean() < limits[form]


@pytest.mark.parametrize(("library", "form"), ALL)
def test_its_pixels_are_compared_with_the_references(library, form, pairs):
    found = distance(pairs, opened(library, form))
    ours = distance(pairs, HostPath(settings("torch"), pin_memory=False))
    if form == "same":
        assert found.mean_abs_diff == pytest.approx(ours.mean_abs_diff, rel=0.5)
    assert found.worst_abs_diff < 20


PREPARED = {"decode", "resize", "collate"}


@pytest.mark.parametrize(
    ("library", "form", "told", "by_workers"),
    [
        ("webdataset", "same", {"read", *PREPARED}, True),
        ("webdataset", "best", {"read", *PREPARED}, True),
        ("litdata", "same", {"read", *PREPARED}, True),
        ("spdl", "same", {"open", "read", *PREPARED}, False),
        ("ffcv", "same", {"read", "decode", "resize"}, False),
        ("ffcv", "best", {"decode"}, False),
    ],
)
def test_a_library_tells_its_stages_and_which_worker_spent_the_time(
    library, form, told, by_workers, pairs, monkeypatch
):
    path = opened(library, form)
    monkeypatch.setattr(stages, "_here", None)
    pairs.recorder = stages.Recorder(2)
    pairs.recorder.attach(0)
    with pairs.recorder.recording():
        list(path._complete(pairs, [[0, 1, 2, 3], [4, 5, 6, 7]]))
    spans = pairs.recorder.spans(2, 4)
    assert set(spans) == {*told, "tokenise"}
    assert set(spans["decode"]["workers"]) <= ({"1", "2"} if by_workers else {"0"})


def test_ffcv_moves_the_pixels_of_the_cache(make_pairs):
    cached = make_pairs(decode="cache")
    numbers = [5, 3, 11, 0]
    (batch,) = opened("ffcv", decode="cache")._complete(cached, [numbers])
    assert torch.equal(batch["pixel_values"], cached.pixels(numbers))


def test_ffcv_goes_on_after_an_epoch_that_was_left(pairs):
    path = opened("ffcv")
    left = path._complete(pairs, itertools.repeat([0, 1]))
    next(left)
    left.close()
    assert len(list(path._complete(pairs, [[2, 3], [4, 5]]))) == 2


def test_ffcv_tells_a_damaged_file(pairs, monkeypatch):
    path = opened("ffcv")
    assert list(path._complete(pairs, [[0, 1]]))
    monkeypatch.setattr("feedrate.loading.libraries.ffcv.decoded", damaged)
    with pytest.raises(DataError, match="cannot be decoded"):
        list(path._complete(copy.copy(pairs), [[0, 1]]))


def damaged(*_):
    raise DataError("0.jpg: cannot be decoded")


# Work that is not equal


def altered(change):
    """A library that alters what it delivers."""

    def batches(work):
        for number, rows in enumerate(work.order):
            yield change(number, *work.make(rows))

    return batches


def swapped(number, rows, pixels):
    return rows[::-1], pixels


def short(number, rows, pixels):
    return rows[:-1], pixels[:-1]


def other_type(number, rows, pixels):
    return rows, pixels.float()


def other_layout(number, rows, pixels):
    return rows, pixels.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swapped, "the rows"),
        (short, "the rows"),
        (other_type, "torch.float32"),
        (other_layout, "another layout"),
    ],
)
def test_a_batch_that_is_not_as_asked_for_ends_the_run(change, says, pairs, monkeypatch):
    path = fake(monkeypatch, altered(change))
    with pytest.raises(UnequalWorkError, match=says):
        list(path._complete(pairs, [[0, 1], [2, 3]]))


def test_an_epoch_that_ends_too_early_ends_the_run(pairs, monkeypatch):
    path = fake(monkeypatch, lambda work: iter([work.make(next(work.order))]))
    with pytest.raises(UnequalWorkError, match="too early"):
        list(path._complete(pairs, [[0, 1], [2, 3]]))


def test_a_library_with_its_own_order_must_not_repeat_a_row(pairs, monkeypatch):
    path = fake(monkeypatch, lambda work: (work.make([0, 1]) for _ in range(2)), own_order=True)
    with pytest.raises(UnequalWorkError, match="twice in one epoch"):
        list(path._complete(pairs, [[0, 1], [2, 3]]))


def fake(monkeypatch, batches, *, own_order=False, on_import=lambda: None):
    """A path whose library makes these batches; nothing needs to be installed."""
    real, plugin = plugins.declared, SimpleNamespace(same=batches)
    facts = {"PACKAGES": {"fake": ("torch",)}, "OWN_ORDER": {"fake": ("same",) * own_order}}
    monkeypatch.setattr(
        plugins,
        "declared",
        lambda kind, name: facts[name] if kind == LIBRARIES else real(kind, name),
    )
    monkeypatch.setattr(plugins, "load", lambda *_: (on_import(), plugin)[1])
    return LibraryPath(settings("fake"), pin_memory=False)


def test_the_model_keeps_its_threads_whatever_a_library_sets(pairs, monkeypatch):
    """FFCV sets torch's threads when it is imported, and again for each epoch."""

    def batches(work):
        torch.set_num_threads(1)
        for numbers in work.order:
            yield numbers, work.dataset.pixels(numbers)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        path = fake(monkeypatch, batches, on_import=lambda: torch.set_num_threads(1))
        assert torch.get_num_threads() == 2
        assert [torch.get_num_threads() for _ in path._complete(pairs, [[0, 1], [2, 3]])] == [2, 2]
    finally:
        torch.set_num_threads(before)


def test_a_library_that_is_not_installed_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(
        "feedrate.config.spec.plugins.declared", lambda *_: {"absent": ("no-such-package",)}
    )
    with pytest.raises(UnsupportedError, match=r"pip install .*loaders/absent\.lock"):
        LibraryPath(settings("absent"), pin_memory=False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"library": "spld"}, "did you mean|spdl"),
        ({"library": "grain", "form": "best"}, "loader.form"),
        ({"library": "dali"}, "set loader.form: best"),
        ({"library": "spdl", "workers": 0}, "takes 1 or more"),
        ({"library": "webdataset", "last_batch": "keep"}, "use drop"),
        ({"library": "webdataset", "decode": "cache"}, "use host"),
        ({"library": "ffcv", "decode": "reference"}, "use host or cache"),
        ({"library": "ffcv", "decode": "cache", "random_flip": True}, "no augmentation"),
        ({"library": "ffcv", "storage": "cold"}, "reads files itself"),
        ({"library": "spdl", "form": "best", "random_flip": True}, "no augmentation"),
        ({"library": "torch", "form": "best"}, "leave it out"),
    ],
)
def test_settings_that_a_library_lacks_are_told(changes, says):
    (fault,) = library_faults(LoaderSettings(**{"decode": "host", "workers": 2, **changes}))
    assert re.search(says, fault)


def test_every_package_of_a_library_is_pinned_in_its_lock():
    for library, packages in plugins.declared(LIBRARIES, "PACKAGES").items():
        lock = (ROOT / f"requirements/loaders/{library}.lock").read_text()
        assert all(f"{package}==" in lock for package in packages)
        environment = (ROOT / f"envs/loaders/{library}.yaml").read_text()
        assert all(line in environment for line in lock.splitlines() if "==" in line)
