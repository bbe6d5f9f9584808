"""Memory that batches use again: never while anyone still looks into it."""

import gc

import pytest
import torch
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.loading.dataset import FREE, TAKEN, Slots, collate
from feedrate.loading.path import HostPath


class Rows(list):
    """A given order."""

    batch_size = 4


def test_a_slot_is_free_again_when_nothing_looks_into_it():
    slots = Slots((4, 2), torch.uint8, workers=0, per_worker=2)
    first = slots.take(4)
    part = first[1:3].flatten()
    address = first.data_ptr()
    assert slots.states.tolist() == [TAKEN, FREE]
    del first
    gc.collect()
    assert slots.states.tolist() == [TAKEN, FREE]  # a view is a look too
    del part
    gc.collect()
    assert slots.states.tolist() == [FREE, FREE]
    assert slots.take(3).data_ptr() == address


def test_where_none_is_free_fresh_memory_is_taken():
    slots = Slots((4, 2), torch.float32, workers=0, per_worker=1)
    first, second = slots.take(4), slots.take(4)
    first.fill_(1)
    second.fill_(2)
    assert (first == 1).all()
    assert slots.take(9).shape == (9, 2)  # larger than a slot


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_that_are_kept_stay_as_they_are(make_pairs, workers, start_method):
    if not workers and start_method != "fork":
        return
    settings = LoaderSettings(decode="host", workers=workers, start_method=start_method)
    dataset = make_pairs(decode="host")
    order = Rows([[(i * 4 + j) % 24 for j in range(4)] for i in range(30)])
    loaded = list(HostPath(settings, pin_memory=False).batches(dataset, order))
    for numbers, batch in zip(order, loaded, strict=True):
        wanted = torch.stack([dataset[number]["pixel_values"] for number in numbers])
        assert torch.equal(batch["pixel_values"], wanted)


def test_workers_fill_the_same_slots_again_and_again(make_pairs):
    settings = LoaderSettings(decode="host", workers=2)
    loader = DataLoader(
        make_pairs(decode="host"),
        batch_sampler=Rows([[0, 1, 2, 3]] * 40),
        collate_fn=collate,
        num_workers=2,
    )
    loader = HostPath(settings, pin_memory=False).wrap(loader)
    addresses = set()
    for batch in loader:
        # Few and large: one of all pixels, two of all tokens.
        assert sum(torch.is_tensor(value) for value in batch.values()) == 3
        addresses.add(batch["pixel_values"].data_ptr())
        del batch
    slots = loader.worker_init_fn.keywords["slots"]["pixel_values"]
    assert slots.batches.is_shared()
    first, size = slots.batches.data_ptr(), slots.batches.nbytes
    assert all(first <= address < first + size for address in addresses)
    assert len(addresses) < 15


def test_two_loaders_of_one_dataset_have_slots_of_their_own(make_pairs):
    dataset = make_pairs(decode="host")
    path = HostPath(LoaderSettings(decode="host", workers=1), pin_memory=False)
    one, two = (path.batches(dataset, Rows([[i, i, i, i]] * 5)) for i in (0, 5))
    for first, second in zip(one, two, strict=True):
        assert torch.equal(first["pixel_values"][0], dataset[0]["pixel_values"])
        assert torch.equal(second["pixel_values"][3], dataset[5]["pixel_values"])
