"""All levels: the same samples in the same order, whoever loads them. Devices are stand-ins."""

import pytest
import torch
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from benchmarks import planted_worker
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.devices.kinds import cpu
from feedrate.loading.dataset import EpochOrder, collate
from feedrate.loading.decoders import cache
from feedrate.loading.path import distance, open_path

LEVELS = {
    "reference": {"decode": "reference"},
    "host": {"decode": "host"},
    "host, scaled": {"decode": "host", "scaled_decode": True},
    "cache": {"decode": "cache"},
}
DEVICES = {"device, cuda": "cuda", "device, hpu": "hpu"}
ALL = LEVELS | {level: {"decode": "device"} for level in DEVICES}
BATCH, SEED = 4, 3

each_level = pytest.mark.parametrize("level", ALL)


def path_of(settings):
    return open_path(cpu.DeviceAdapter(0, 1), LoaderSettings(**settings))


@pytest.fixture
def way(calls, media, cuda, gaudi):
    """The path of a level with these settings, on the host or on a device's stand-in."""
    devices = {"cuda": cuda, "hpu": gaudi}

    def _open(level, settings):
        if level not in DEVICES:
            return path_of(settings)
        return open_path(devices[DEVICES[level]], LoaderSettings(**settings))

    return _open


def trainers_loader(dataset, path, workers=0, *, rank=0, ranks=1):
    """A loader as the Trainer has accelerate make it, on its path."""
    PartialState(cpu=True)
    options = {"prefetch_factor": 2, "num_workers": workers} if workers else {}
    loader = DataLoader(
        dataset,
        BATCH,
        sampler=EpochOrder(len(dataset), SEED),
        collate_fn=collate,
        drop_last=True,
        **options,
    )
    prepared = prepare_data_loader(
        loader,
        device=torch.device("cpu"),
        num_processes=ranks,
        process_index=rank,
        put_on_device=True,
    )
    return path.wrap(prepared)


def kept(loader, dataset):
    """The batches of an epoch as the model takes them, each in memory of its own."""
    return [
        {k: v.clone() for k, v in dataset.finish(b).items() if torch.is_tensor(v)} for b in loader
    ]


def assert_same(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


@each_level
def test_batches_have_the_shapes_and_types_that_the_model_takes(make_pairs, way, level):
    dataset = make_pairs(**ALL[level])
    loader = trainers_loader(dataset, way(level, ALL[level]))
    (batch, *_) = list(loader)
    finished = level == "reference" or level in DEVICES
    assert batch["pixel_values"].dtype == (torch.float32 if finished else torch.uint8)
    done = dataset.finish(batch)
    assert done["pixel_values"].shape == (BATCH, 3, 32, 32)
    assert done["pixel_values"].dtype == torch.float32
    assert done["input_ids"].shape == done["attention_mask"].shape == (BATCH, 10)
    assert done["input_ids"].dtype == torch.int64
    assert set(done) == {"pixel_values", "input_ids", "attention_mask", "return_loss"}


@each_level
def test_the_number_of_workers_changes_nothing(make_pairs, way, level):
    settings, epochs = ALL[level], {}
    for workers in (0, 1, 2):
        dataset = make_pairs(**settings)
        path = way(level, settings | {"workers": workers})
        loader = trainers_loader(dataset, path, 0 if level in DEVICES else workers)
        epochs[workers] = [kept(loader, dataset) for _ in range(2)]
    for workers in (1, 2):
        for one, other in zip(epochs[0], epochs[workers], strict=True):
            assert_same(one, other)
    first, second = epochs[0]
    assert not torch.equal(first[0]["pixel_values"], second[0]["pixel_values"])


@each_level
def test_ranks_share_out_the_same_batches(make_pairs, way, level):
    dataset, path = make_pairs(**ALL[level]), way(level, ALL[level])
    alone = kept(trainers_loader(dataset, path), dataset)
    shared = [kept(trainers_loader(dataset, path, rank=r, ranks=2), dataset) for r in (0, 1)]
    assert_same([batch for pair in zip(*shared, strict=True) for batch in pair], alone)


@given(rows=st.integers(1, 300), seed=st.integers(0, 2**31), epoch=st.integers(0, 40))
def test_every_sample_comes_once_an_epoch(rows, seed, epoch):
    order = EpochOrder(rows, seed)
    order.set_epoch(epoch)
    assert sorted(order) == list(range(rows))


def test_epochs_follow_one_another_and_can_be_set():
    order = EpochOrder(20, SEED)
    first, second = list(order), list(order)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    order.set_epoch(0)
    assert list(order) == first
    assert len(order) == 20


@given(rows=st.integers(1, 60), step_samples=st.integers(1, 80))
def test_a_filled_step_repeats_rows_of_its_epoch(rows, step_samples):
    order = EpochOrder(rows, SEED, step_samples=step_samples, fill=True)
    taken, plain = list(order), list(EpochOrder(rows, SEED))
    assert len(taken) == len(order)
    assert len(taken) % step_samples == 0
    assert rows <= len(taken) < rows + step_samples
    assert taken == [plain[place % rows] for place in range(len(taken))]


def test_the_cache_has_the_very_pixels_of_the_host(make_pairs):
    host, cache = make_pairs(decode="host"), make_pairs(decode="cache")
    for row in range(len(host)):
        assert torch.equal(host[row]["pixel_values"], cache[row]["pixel_values"])
        assert torch.equal(host[row]["input_ids"], cache[row]["input_ids"])


def test_a_batch_of_the_cache_is_gathered_to_the_hosts_pixels(make_pairs, monkeypatch):
    host, cache = make_pairs(decode="host"), make_pairs(decode="cache")
    # Whole batches come in one copy: no row is read by itself.
    monkeypatch.setattr(cache, "read", None)
    rows = [5, 23, 5, 0, 7]
    wanted, found = host.batch(rows), cache.batch(rows)
    assert host.read(0).shape[0] == 1 or host.read(6).shape[0] == 1
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_the_distance_to_the_reference_is_told(make_pairs, level):
    dataset = make_pairs(**LEVELS[level])
    found = distance(dataset, path_of(LEVELS[level]))
    if level == "reference":
        assert found == (0.0, None, 0.0)
    else:
        # Strokes on white: clipping what the reference keeps above white counts too.
        assert 0.1 < found.mean_abs_diff < (8 if level == "host, scaled" else 1.2)
        assert (20 if level == "host, scaled" else 35) < found.psnr_db < 60


def test_a_planted_fault_delays_each_sample_that_is_read(make_pairs, monkeypatch):
    """A fault that benchmarks/faults.py plants nowhere would count as one that is not named."""
    delays = []
    monkeypatch.setattr(planted_worker.time, "sleep", delays.append)
    monkeypatch.setattr(cache, "read", cache.read)
    monkeypatch.setattr(cache.Store, "gather", cache.Store.gather)
    planted_worker.slow_read(seconds=0.8, batch=4)
    pairs = make_pairs(decode="cache")
    pairs.batch([3, 1, 2])
    _ = [pairs[row] for row in (3, 1, 2)]
    assert delays == [0.2] * 6
