"""The first batch, which all workers of a loader fill together."""

import multiprocessing
import threading
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.devices.kinds import cpu
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.path import open_path
from feedrate.loading.slots import FirstBatch, Slots

ROWS = 24


class Rows(list):
    """A given order."""

    batch_size = 4


def batches(dataset, order):
    loader = LoaderSettings(decode="host", workers=2, timeout_s=60.0)
    return open_path(cpu.DeviceAdapter(0, 1), loader).batches(dataset, Rows(order))


def test_another_worker_writes_rows_of_the_first_batch(make_pairs):
    dataset = make_pairs(decode="host")
    offered, begun, alone = (multiprocessing.Event() for _ in range(3))
    read = dataset.read

    class Later(PairDataset):
        def batch(self, numbers):
            if numbers[0] == 4:  # a worker that came before the offer would not see it
                offered.wait(60)
            return super().batch(numbers)

    def waiting(row):
        if row == 0:  # only another worker can begin with row 1 meanwhile
            offered.set()
            if not begun.wait(60):
                alone.set()
        elif row == 1:
            begun.set()
        return read(row)

    dataset.__class__, dataset.read = Later, waiting
    order = [[0, 1, 2, 3], [4, 5, 6, 7]]
    first, second = batches(dataset, order)
    assert not alone.is_set()
    dataset.__class__, dataset.read = PairDataset, read
    for numbers, batch in zip(order, (first, second), strict=True):
        wanted = torch.stack([dataset[number]["pixel_values"] for number in numbers])
        assert torch.equal(batch["pixel_values"], wanted)


def test_each_epoch_of_processes_begins_with_all_its_rows(make_pairs):
    dataset = make_pairs(decode="host")
    order = Rows([[0, 5, 9, 3], [7, 1, 2, 2], [4, 4, 8, 6]])
    loader = LoaderSettings(decode="host", workers=2)
    adopted = open_path(cpu.DeviceAdapter(0, 1), loader)
    made = torch.utils.data.DataLoader(
        dataset, batch_sampler=order, collate_fn=collate, num_workers=2
    )
    made = adopted.wrap(made)
    for _ in range(3):
        next(iter(made))  # an epoch that is left early
        for numbers, batch in zip(order, made, strict=True):
            wanted = torch.stack([dataset[number]["pixel_values"] for number in numbers])
            assert torch.equal(batch["pixel_values"], wanted)


def test_the_batch_of_a_damaged_row_raises_its_error(make_pairs):
    dataset = make_pairs(decode="host")
    read = dataset.read

    def damaged(row):
        if row == 3:
            raise DataError(f"row {row}: cannot be decoded")
        return read(row)

    dataset.read = damaged
    with pytest.raises(DataError, match="row 3: cannot be decoded"):
        next(batches(dataset, [[0, 1, 2, 3], [4, 5, 6, 7]]))
    later = batches(dataset, [[0, 1, 2, 4], [4, 3, 6, 7]])
    assert torch.equal(next(later)["pixel_values"][3], dataset[4]["pixel_values"])
    with pytest.raises(DataError, match="row 3: cannot be decoded"):
        next(later)


@given(size=st.integers(1, 9), helpers=st.integers(0, 4), bad=st.sets(st.integers(0, 8)))
def test_each_row_is_written_once_and_a_failed_one_again(size, helpers, bad):
    slots = Slots((9, 2), torch.uint8, workers=0, each=1)
    first = FirstBatch(slots, threading.Lock())
    tries = []

    def write(place, number):
        tries.append(number)
        if number in bad and tries.count(number) == 1:
            raise DataError("once")
        place.fill_(number)

    room = slots.take(size)
    others = [threading.Thread(target=partial(first.help, write)) for _ in range(helpers)]
    for other in others:
        other.start()
    assert first.fill(room, list(range(size)), write)
    for other in others:
        other.join()
    assert room[:, 0].tolist() == list(range(size))
    assert sorted(tries) == sorted([*range(size), *(bad & set(range(size)))])
    assert not first.fill(room, list(range(size)), write)
