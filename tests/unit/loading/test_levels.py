"""All levels: the same samples in the same order, whoever loads them. Devices are stand-ins."""

import pytest
import torch
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from benchmarks import planted_worker
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.devices.kinds import cpu
from feedrate.loading.dataset import EpochOrder, collate, shuffled
from feedrate.loading.decoders import cache
from feedrate.loading.path import distance, open_path
from feedrate.loading.pixels import NOTHING

LEVELS = {
    "reference": {"decode": "reference"},
    "host": {"decode": "host"},
    "host, scaled": {"decode": "host", "scaled_decode": True},
    "cache": {"decode": "cache"},
}
DEVICES = {"device, cuda": "cuda", "device, hpu": "hpu"}
THREADS = {"threads": {"decode": "host", "start_method": "thread", "workers": 2}}
ALL = LEVELS | THREADS | {level: {"decode": "device"} for level in DEVICES}
AUGMENTED = {"random_crop": 0.4, "random_flip": True, "colour_jitter": 0.2}
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


def trainers_loader(dataset, path, workers=0, *, rank=0, ranks=1, numbered=True):
    """A loader as the Trainer has accelerate make it, on its path."""
    PartialState(cpu=True)
    options = {"prefetch_factor": 2, "num_workers": workers} if workers else {}
    loader = DataLoader(
        dataset,
        BATCH,
        sampler=EpochOrder(len(dataset), SEED, numbered=numbered),
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
    return path.adopt(prepared)


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
    dataset = make_pairs(**ALL[level], **AUGMENTED)
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
    settings = ALL[level] | AUGMENTED
    epochs = {}
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
    settings = ALL[level] | AUGMENTED
    dataset, path = make_pairs(**settings), way(level, settings)
    alone = kept(trainers_loader(dataset, path), dataset)
    shared = [kept(trainers_loader(dataset, path, rank=r, ranks=2), dataset) for r in (0, 1)]
    assert_same([batch for pair in zip(*shared, strict=True) for batch in pair], alone)


@given(rows=st.integers(1, 300), seed=st.integers(0, 2**31), epoch=st.integers(0, 40))
def test_every_sample_comes_once_an_epoch(rows, seed, epoch):
    plain = shuffled(rows, seed, epoch, numbered=False)
    assert sorted(plain) == list(range(rows))
    assert [epoch * rows + row for row in plain] == shuffled(rows, seed, epoch, numbered=True)


def test_epochs_follow_one_another_and_can_be_set():
    order = EpochOrder(20, SEED, numbered=True)
    first, second = list(order), list(BatchSampler(order, 3, drop_last=True))
    assert sorted(first) == list(range(20))
    assert all(20 <= number < 40 for batch in second for number in batch)
    order.set_epoch(0)
    assert list(order) == first
    assert len(order) == 20


@given(rows=st.integers(1, 60), a_step=st.integers(1, 80), numbered=st.booleans())
def test_a_filled_step_repeats_rows_of_its_epoch(rows, a_step, numbered):
    order = EpochOrder(rows, SEED, numbered=numbered, a_step=a_step, fill=True)
    order.set_epoch(3)
    taken, plain = list(order), shuffled(rows, SEED, 3, numbered=numbered)
    assert len(taken) == len(order)
    assert len(taken) % a_step == 0
    assert rows <= len(taken) < rows + a_step
    assert taken == [plain[place % rows] for place in range(len(taken))]


def levels_of(dataset, row):
    """A row's pixels of 0 to 255, without augmentation."""
    sample = collate([dataset[row]])
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (dataset.mean, dataset.std))
    return (dataset.finish(sample)["pixel_values"][0] * std + mean) * 255


def test_the_cache_has_the_very_pixels_of_the_host(make_pairs):
    host, cache = make_pairs(decode="host"), make_pairs(decode="cache")
    for row in range(len(host)):
        assert torch.equal(host[row]["pixel_values"], cache[row]["pixel_values"])
        assert torch.equal(host[row]["input_ids"], cache[row]["input_ids"])


@pytest.mark.parametrize("flip", [False, True])
def test_a_batch_of_the_cache_is_gathered_to_the_hosts_pixels(make_pairs, monkeypatch, flip):
    host = make_pairs(decode="host", random_flip=flip)
    cache = make_pairs(decode="cache", random_flip=flip)
    # Whole batches come in one copy: no row is read by itself.
    monkeypatch.setattr(cache, "read", None)
    numbers = [5, 23, 5, 0, 7, 24 + 5]
    wanted, found = host.batch(numbers), cache.batch(numbers)
    assert host.read(0, NOTHING).shape[0] == 1 or host.read(6, NOTHING).shape[0] == 1
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize("level", ["host", "cache"])
def test_augmented_pixels_are_near_the_references(make_pairs, level):
    reference = make_pairs(decode="reference", **AUGMENTED)
    other = make_pairs(decode=level, **AUGMENTED)
    plain = make_pairs(decode="reference")
    for number in range(2 * len(reference)):
        wanted = levels_of(reference, number).clamp(0, 255)
        found = levels_of(other, number)
        # The cache crops a smaller picture, at whole px of its own.
        assert (found - wanted).abs().mean() < (2 if level == "host" else 14)
        assert (levels_of(plain, number % 24) - wanted).abs().mean() > 1


@pytest.mark.parametrize("fetch", ["sample", "batch"])
@pytest.mark.parametrize("transfer", ["uint8", "float32"])
def test_what_is_fetched_and_transferred_changes_no_pixel(make_pairs, fetch, transfer):
    base = {"decode": "host", **AUGMENTED}
    settings = base | {"fetch": fetch, "transfer": transfer}
    usual, dataset = make_pairs(**base), make_pairs(**settings)
    wanted = kept(trainers_loader(usual, path_of(base)), usual)
    found = kept(trainers_loader(dataset, path_of(settings)), dataset)
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one["pixel_values"], other["pixel_values"], atol=1e-5)


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


def test_the_distance_leaves_augmentation_out(make_pairs):
    plain, changed = make_pairs(decode="host"), make_pairs(decode="host", **AUGMENTED)
    path = path_of({"decode": "host"})
    assert distance(plain, path) == distance(changed, path)


@pytest.mark.parametrize("fetch", ["sample", "batch"])
def test_a_planted_fault_delays_each_sample_that_is_read(fetch, make_pairs, monkeypatch):
    """A fault that benchmarks/faults.py plants nowhere would count as one that is not named."""
    delays = []
    monkeypatch.setattr(planted_worker.time, "sleep", delays.append)
    monkeypatch.setattr(cache, "read", cache.read)
    monkeypatch.setattr(cache.Store, "gather", cache.Store.gather)
    planted_worker.slow_read(seconds=0.8, batch=4)
    pairs = make_pairs(decode="cache", fetch=fetch)
    whole = pairs.__getitems__
    _ = whole([3, 1, 2]) if whole else [pairs[n] for n in (3, 1, 2)]
    assert delays == [0.2] * 3
