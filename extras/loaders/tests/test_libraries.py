"""Other loader libraries: equal work in every batch, and errors where it is not equal."""

import copy
import itertools
import re
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.requirements import Requirement

import fake_library
from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES, loader_faults
from feedrate.core import plugins
from feedrate.data.manifest import DataError
from feedrate.devices.base import UnsupportedError
from feedrate.loading import stages
from feedrate.loading.path import HostPath, distance, open_path
from feedrate_loaders.libraries._feed import LibraryPath, UnequalWorkError
from feedrate_loaders.libraries._rules import missing_packages

ROOT = Path(__file__).resolve().parents[1]
FORMS = plugins.declared(LIBRARIES, "FORMS")
OWN_ORDER = plugins.declared(LIBRARIES, "OWN_ORDER")
ALL = [(name, form) for name, forms in FORMS.items() for form in forms]


def settings(library, form="same", **changes):
    best = {"form": "best"} if form == "best" else {}
    changes = {"decode": "host", "workers": 2, "max_tokens": 10, **best, **changes}
    return LoaderSettings(library=library, **changes)


@pytest.fixture
def opened(needs):
    def _opened(library, form="same", **changes):
        needs(library, form)
        return LibraryPath(settings(library, form, **changes), pin_memory=False)

    return _opened


@pytest.fixture
def pairs(make_pairs):
    return make_pairs(decode="host")


def fitting_rows(pairs, batch, limit):
    """For each sample the rows with its tokens whose pixels differ by less than `limit` of 255."""
    for pixels, tokens, mask in zip(
        *(batch[name] for name in ("pixel_values", "input_ids", "attention_mask")), strict=True
    ):
        same = (pairs.input_ids == tokens).all(1) & (pairs.attention_mask == mask).all(1)
        rows = same.nonzero().flatten().tolist()
        difference = (pairs.pixels(rows).float() - pixels.float()).abs().mean((1, 2, 3))
        yield [row for row, levels in zip(rows, difference, strict=True) if levels < limit]


# Mean difference of a picture to ours, of 255. FFCV averages areas, which at 32 px is far from
# bicubic.
LIMITS = {("ffcv", "best"): 20}


@pytest.mark.parametrize(("library", "form"), ALL)
def test_an_epoch_has_each_row_once_with_its_own_tokens_and_pixels(library, form, pairs, opened):
    path, rows = opened(library, form), len(pairs)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).tolist()
    asked = [order[start : start + 4] for start in range(0, rows - 3, 4)]
    limit, found = LIMITS.get((library, form), 0.01 if form == "same" else 6), []
    for batch, numbers in zip(path._complete(pairs, asked), asked, strict=True):
        assert batch["return_loss"]
        fitting = list(fitting_rows(pairs, batch, limit))
        assert len(fitting) == len(numbers)
        found += fitting
    assert all(len(fitting) == 1 for fitting in found), "tokens tell rows apart"
    delivered = [row for (row,) in found]
    assert sorted(delivered) == list(range(rows))
    if library not in OWN_ORDER:
        assert delivered == order


def test_another_rows_pixels_fit_no_tokens(pairs):
    """The rows of a picture are neighbours, so these pixels are those of another one."""
    batch = {"pixel_values": pairs.pixels([0, 1])} | pairs.tokens_of([0, 5])
    assert list(fitting_rows(pairs, batch, 6)) == [[0], []]
    assert list(fitting_rows(pairs, batch, 20)) == [[0], []]


@pytest.mark.parametrize(
    ("library", "form"), [("spdl", "same"), *(one for one in ALL if one[1] == "best")]
)
def test_its_pixels_are_compared_with_the_references(library, form, pairs, opened):
    found = distance(pairs, opened(library, form))
    ours = distance(pairs, HostPath(settings("torch"), pin_memory=False))
    if form == "same":
        assert found.mean_abs_diff == pytest.approx(ours.mean_abs_diff, rel=0.5)
    assert found.worst_abs_diff < 20


PREPARED = {"decode", "resize", "collate"}


@pytest.mark.parametrize(
    ("library", "form", "told"),
    [
        ("webdataset", "same", {"read", *PREPARED}),
        ("webdataset", "best", {"read", *PREPARED}),
        ("litdata", "same", {"read", *PREPARED}),
        ("litdata", "best", {"read", *PREPARED}),
        ("dali", "same", {"open", "read", *PREPARED}),
        ("spdl", "same", {"open", "read", *PREPARED}),
        ("ffcv", "same", {"read", "decode", "resize"}),
        ("ffcv", "best", {"decode"}),
    ],
)
def test_a_library_tells_its_stages(library, form, told, pairs, monkeypatch, opened):
    path = opened(library, form)
    monkeypatch.setattr(stages, "_process", None)
    pairs.recorder = stages.Recorder(2)
    pairs.recorder.attach(0)
    with pairs.recorder.recording():
        list(path._complete(pairs, [[0, 1, 2, 3], [4, 5, 6, 7]]))
    assert set(pairs.recorder.spans(2, 4)) == {*told, "tokenise", "hand_over"}


def test_dali_tells_no_stage_but_reading(pairs, monkeypatch, opened):
    path = opened("dali", "best")
    monkeypatch.setattr(stages, "_process", None)
    recorder = stages.Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        list(path._complete(pairs, [[0, 1, 2, 3], [4, 5, 6, 7]]))
    assert set(recorder.spans(2, 4)) == {"read", "tokenise"}
    assert plugins.declared(LIBRARIES, "SILENT") == {"dali": ("best",)}


def test_dalis_graph_of_a_gpu_makes_the_pixels_of_its_cpu(make_pairs, opened, monkeypatch):
    """A CPU stands in for the GPU; only the decoder's and the resize's kernels are others there."""
    cpu = opened("dali", "best")
    monkeypatch.setattr("feedrate_loaders.libraries.dali._gpu", lambda: torch.device("cpu"))
    gpu, order = opened("dali", "best", decode="device"), [[5, 3], [0, 1]]
    for mine, theirs in zip(
        gpu._complete(make_pairs(decode="device"), order),
        cpu._complete(make_pairs(decode="host"), order),
        strict=True,
    ):
        assert torch.equal(mine["pixel_values"], theirs["pixel_values"])


def test_a_library_decodes_on_no_other_device_than_an_nvidia_gpu():
    loader = settings("dali", "best", decode="device")
    assert not list(loader_faults(loader))
    for kind in ("cpu", "hpu"):
        with pytest.raises(UnsupportedError, match="dali needs an NVIDIA GPU"):
            open_path(SimpleNamespace(kind=kind, pins_memory=True), loader)
    for other in (settings("dali", decode="device"), settings("spdl", "best", decode="device")):
        assert "loader.decode: device" in next(loader_faults(other))


@pytest.mark.parametrize("library", FORMS)
def test_the_pins_of_a_library_are_what_its_packages_ask_for(library, needs):
    needs(library)
    lines = (ROOT / f"requirements/{library}.lock").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    for package in pins:
        for line in metadata.requires(package) or ():
            asked = Requirement(line)
            wanted = asked.marker is None or asked.marker.evaluate({"extra": "all"})
            pin = pins.get(asked.name)
            assert not (wanted and pin) or asked.specifier.contains(pin), f"{package}: {asked}"


def test_ffcv_moves_the_pixels_of_the_cache(make_pairs, opened):
    path, numbers = opened("ffcv", decode="cache"), [5, 3, 11, 0]
    cached = make_pairs(decode="cache")
    (batch,) = path._complete(cached, [numbers])
    assert torch.equal(batch["pixel_values"], cached.pixels(numbers))


def test_ffcv_goes_on_after_an_epoch_that_was_left(pairs, opened):
    path = opened("ffcv")
    left = path._complete(pairs, itertools.repeat([0, 1]))
    next(left)
    left.close()
    assert len(list(path._complete(pairs, [[2, 3], [4, 5]]))) == 2


def test_ffcv_tells_a_damaged_file(pairs, monkeypatch, opened):
    path = opened("ffcv")
    assert list(path._complete(pairs, [[0, 1]]))
    monkeypatch.setattr("feedrate_loaders.libraries.ffcv.decoded", damaged)
    with pytest.raises(DataError, match="cannot be decoded"):
        list(path._complete(copy.copy(pairs), [[0, 1]]))


def damaged(*_):
    raise DataError("0.jpg: cannot be decoded")


# Work that is not equal


def altered(change):
    """A library that alters what it delivers."""

    def batches(work):
        for rows in work.order:
            yield change(rows, work.make(rows).pixels)

    return batches


def swapped(rows, pixels):
    return rows[::-1], pixels


def short(rows, pixels):
    return rows[:-1], pixels[:-1]


def other_type(rows, pixels):
    return rows, pixels.float()


def other_layout(rows, pixels):
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


def test_a_library_with_its_own_order_must_give_as_many_rows(pairs, monkeypatch):
    path = fake(monkeypatch, lambda work: map(work.make, ([2, 0], [1, 3])), own_order=True)
    with pytest.raises(UnequalWorkError, match="2 rows in place of 1"):
        list(path._complete(pairs, [[0, 1], [2]]))


def test_a_library_with_its_own_order_may_end_each_worker_with_fewer_rows(pairs, monkeypatch):
    parts = [[2, 0, 5], [7, 1], [3, 4], [6]]
    path = fake(monkeypatch, lambda work: map(work.make, parts), own_order=True)
    batches = list(path._complete(pairs, [[0, 1, 2, 3], [4, 5, 6, 7]]))
    whole = torch.cat([batch["pixel_values"] for batch in batches])
    assert torch.equal(whole, pairs.pixels([2, 0, 5, 7, 1, 3, 4, 6]))


@pytest.mark.parametrize("workers", [1, 0])
def test_hand_over_is_from_a_complete_batch_to_the_one_who_asks(workers, pairs, monkeypatch):
    """A batch that was complete before it is asked for waits for nobody."""

    def batches(work):
        for numbers in work.order:
            made = work.make(numbers)
            time.sleep(0.02)
            yield made
            yield made._replace(numbers=next(work.order), complete_s=time.perf_counter() - 5)

    monkeypatch.setattr(stages, "_process", None)
    recorder, path = stages.Recorder(0), fake(monkeypatch, batches, workers=workers)
    recorder.attach(0)
    with recorder.recording():
        list(path._complete(pairs, [[0, 1], [0, 1]]))
    told = recorder.spans(2, 2)
    if not workers:
        assert "hand_over" not in told, "the process made it itself"
        return
    assert told["hand_over"]["count"] == 2
    assert 0.015 <= told["hand_over"]["p95_s"] < 1


def fake(monkeypatch, batches, *, workers=2, **options):
    """A path whose library makes these batches; nothing needs to be installed."""
    fake_library.install(monkeypatch, batches, **options)
    return LibraryPath(settings(fake_library.NAME, workers=workers), pin_memory=False)


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
    monkeypatch.setattr("feedrate_loaders.libraries._rules.metadata.distributions", lambda name: [])
    missing_packages.cache_clear()
    with pytest.raises(UnsupportedError, match=r"pip install .*loaders/requirements/grain\.lock"):
        LibraryPath(settings("grain"), pin_memory=False)
    missing_packages.cache_clear()


def test_an_interpreter_without_the_plug_in_says_so():
    with pytest.raises(UnsupportedError, match="absent: this interpreter has no plug-in"):
        open_path(SimpleNamespace(kind="cpu", pins_memory=True), settings("absent"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"library": "spld"}, "did you mean|spdl"),
        ({"library": "grain", "form": "best"}, "loader.form"),
        ({"library": "spdl", "workers": 0}, "takes 1 or more"),
        ({"library": "webdataset", "last_batch": "keep"}, "use drop"),
        ({"library": "webdataset", "decode": "cache"}, "use host"),
        ({"library": "ffcv", "decode": "reference"}, "use host or cache"),
        ({"library": "ffcv", "decode": "cache", "scaled_decode": True}, "does not scale"),
        ({"library": "spdl", "form": "best", "scaled_decode": True}, "does not scale"),
        ({"library": "torch", "form": "best"}, "leave it out"),
    ],
)
def test_settings_that_a_library_lacks_are_told(changes, says):
    (fault,) = loader_faults(LoaderSettings(**{"decode": "host", "workers": 2, **changes}))
    assert re.search(says, fault)


def test_every_package_of_a_library_is_pinned_in_its_lock():
    for library, packages in plugins.declared(LIBRARIES, "PACKAGES").items():
        lock = (ROOT / f"requirements/{library}.lock").read_text()
        assert all(f"{package}==" in lock for package in packages)
        environment = (ROOT / f"envs/{library}.yaml").read_text()
        assert all(line in environment for line in lock.splitlines() if "==" in line)
