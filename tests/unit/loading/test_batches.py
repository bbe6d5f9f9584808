"""Batches of workers: each has the pixels of its samples, and keeps them."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.devices.kinds import cpu
from feedrate.loading.dataset import collate
from feedrate.loading.path import HostPath, open_path

ROWS = 24


class Rows(list):
    """A given order."""

    batch_size = 4


def batches(dataset, order, **values):
    loader = LoaderSettings(decode="host", timeout_s=60.0, **{"workers": 2} | values)
    return open_path(cpu.DeviceAdapter(0, 1), loader).batches(dataset, Rows(order))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    order=st.lists(st.lists(st.integers(0, 3 * ROWS - 1), min_size=1, max_size=4), max_size=6),
    changes=st.sampled_from([{}, {"random_crop": 0.3, "random_flip": True, "colour_jitter": 0.4}]),
    workers=st.integers(2, 5),
)
def test_every_batch_has_the_bytes_of_its_samples(make_pairs, order, changes, workers):
    dataset = make_pairs(decode="host", **changes)
    found = list(batches(dataset, order, workers=workers, start_method="thread", **changes))
    assert len(found) == len(order)
    for numbers, batch in zip(order, found, strict=True):
        samples = [dataset[number] for number in numbers]
        for name in samples[0]:
            assert torch.equal(batch[name], torch.stack([one[name] for one in samples]))


def test_each_epoch_of_processes_begins_with_all_its_rows(make_pairs):
    dataset = make_pairs(decode="host")
    order = Rows([[0, 5, 9, 3], [7, 1, 2, 2], [4, 4, 8, 6]])
    loader = DataLoader(dataset, batch_sampler=order, collate_fn=collate, num_workers=2)
    path = HostPath(LoaderSettings(decode="host", workers=2), pin_memory=False)
    loader = path.adopt(loader)
    for _ in range(3):
        next(iter(loader))  # an epoch that is left early
        for numbers, batch in zip(order, loader, strict=True):
            assert_pixels(dataset, numbers, batch)


@pytest.mark.parametrize("start_method", ["thread", "fork"])
def test_the_batch_of_a_damaged_row_raises_its_error(make_pairs, start_method):
    dataset = make_pairs(decode="host")
    read = dataset.read

    def damaged(row, draw):
        if row == 3:
            raise DataError(f"row {row}: cannot be decoded")
        return read(row, draw)

    dataset.read = damaged
    later = batches(dataset, [[0, 1, 2, 4], [4, 3, 6, 7]], start_method=start_method)
    assert torch.equal(next(later)["pixel_values"][3], dataset[4]["pixel_values"])
    with pytest.raises(DataError, match="row 3: cannot be decoded"):
        next(later)


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_kept_stay_as_they_are(make_pairs, workers, start_method):
    dataset = make_pairs(decode="host")
    order = [[(i * 4 + j) % 24 for j in range(4)] for i in range(30)]
    loaded = list(batches(dataset, order, workers=workers, start_method=start_method))
    for numbers, batch in zip(order, loaded, strict=True):
        assert_pixels(dataset, numbers, batch)


def test_workers_send_few_and_large_tensors_in_shared_memory(make_pairs):
    for batch in batches(make_pairs(decode="host"), [[0, 1, 2, 3]] * 4):
        tensors = [value for value in batch.values() if torch.is_tensor(value)]
        assert len(tensors) == 3  # one of all pixels, two of all tokens
        assert all(tensor.is_shared() for tensor in tensors)


def assert_pixels(dataset, numbers, batch):
    wanted = torch.stack([dataset[number]["pixel_values"] for number in numbers])
    assert torch.equal(batch["pixel_values"], wanted)
