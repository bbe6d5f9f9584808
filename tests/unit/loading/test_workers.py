"""Workers of the loaders: how they start, what they may use, and how their end is told."""

import os
import signal
import threading
import time
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.devices.base import UnsupportedError
from feedrate.devices.kinds import cpu
from feedrate.jobs.worker import classify
from feedrate.loading.path import HostPath, open_path
from feedrate.loading.workers import check_workers, start_worker, worker_threads


class Threads:
    """A dataset whose samples tell of the worker that made them."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"threads": torch.tensor([torch.get_num_threads(), os.getpid()])}


def test_workers_have_one_thread_and_keep_the_trainers_seeding(capfd):
    start = partial(start_worker, then=lambda worker: print(f"seeded {worker}", flush=True))
    loader = DataLoader(Threads(), batch_size=2, num_workers=2, worker_init_fn=start)
    seen = torch.cat([batch["threads"] for batch in loader])
    assert set(seen[:, 0].tolist()) == {1}
    assert os.getpid() not in seen[:, 1].tolist()
    assert {"seeded 0", "seeded 1"} <= set(capfd.readouterr().out.split("\n"))


class Dying(Threads):
    """A dataset whose worker is killed."""

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_that_dies_is_reported_with_its_cause(monkeypatch):
    # The dead worker is waited for so long when the loader is thrown away.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    loader = DataLoader(Dying(), batch_size=2, num_workers=1, worker_init_fn=start_worker)
    with pytest.raises(RuntimeError) as error:
        next(iter(loader))
    assert "a loader worker was killed (signal: Killed)" in classify(error.value).message


class Computing(Threads):
    """A dataset whose worker computes on all its threads."""

    def __getitem__(self, index):
        return {"sum": torch.rand(2000, 2000).float().mul(2).mean()}


def test_workers_with_several_threads_compute_where_they_are_not_forked(monkeypatch):
    torch.rand(2000, 2000).mul(2).mean()  # the rank's own threads have started
    settings = {"threads_per_worker": 2, "timeout_s": 60.0}
    check_workers(LoaderSettings(workers=1, start_method="forkserver", threads_per_worker=2), 2)
    with pytest.raises(UnsupportedError, match="2 threads hang in a forked worker"):
        check_workers(LoaderSettings(workers=1, threads_per_worker=2), 2)
    check_workers(LoaderSettings(workers=0, threads_per_worker=2), 2)
    check_workers(LoaderSettings(workers=1, decode="device", threads_per_worker=2), 2)
    monkeypatch.setattr("feedrate.loading.workers.cores_granted", lambda: 4)
    monkeypatch.setattr("feedrate.loading.path.collate", torch.utils.data.default_collate)
    (first, _) = equipped(Computing(), start_method="forkserver", **settings)
    assert 0.9 < first["sum"][0] < 1.1


class Hanging(Threads):
    """A dataset whose worker never comes back."""

    def __getitem__(self, index):
        time.sleep(60)
        return super().__getitem__(index)


class Rows(list):
    batch_size = 2


def equipped(dataset, **settings):
    path = HostPath(LoaderSettings(**{"decode": "host", "workers": 1} | settings), pin_memory=False)
    return path.batches(dataset, Rows([[0, 1], [2, 3]]))


def test_a_worker_that_hangs_is_reported_by_a_timeout(monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    monkeypatch.setattr("feedrate.loading.path.collate", torch.utils.data.default_collate)
    with pytest.raises(RuntimeError) as error:
        next(equipped(Hanging(), timeout_s=0.4))
    told = classify(error.value).message
    assert told == "a loader worker hangs: it made no batch within 0.4 s (loader.timeout_s)"


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_workers_are_started_as_asked_for(make_pairs, start_method):
    dataset = make_pairs(decode="host")
    (first, _) = equipped(dataset, start_method=start_method)
    assert torch.equal(first["pixel_values"][1], dataset[1]["pixel_values"])


@pytest.mark.parametrize(("asked", "threads"), [(1, 1), (2, 2), (64, 4)])
def test_threads_of_a_worker_are_those_asked_for_within_the_cores(monkeypatch, asked, threads):
    monkeypatch.setattr("feedrate.loading.workers.cores_granted", lambda: 4)
    monkeypatch.setattr("feedrate.loading.path.collate", torch.utils.data.default_collate)
    settings = {"threads_per_worker": asked, "start_method": "forkserver"}
    (first, _) = equipped(Threads(), **settings)
    assert first["threads"][0, 0] == threads


@given(workers=st.integers(0, 64), asked=st.integers(1, 64), cores=st.integers(1, 256))
def test_workers_together_never_have_more_threads_than_cores(workers, asked, cores):
    settings = LoaderSettings(workers=workers, threads_per_worker=asked)
    threads = worker_threads(settings, cores)
    assert 1 <= threads <= asked
    assert threads == 1 or threads * max(1, workers) <= cores


@given(
    workers=st.integers(0, 64),
    cores=st.integers(1, 32),
    decode=st.sampled_from(["reference", "host", "cache", "device"]),
)
def test_more_workers_than_cores_are_refused_unless_wanted(workers, cores, decode):
    check_workers(LoaderSettings(decode=decode, workers=workers, oversubscribe=True), cores)
    settings = LoaderSettings(decode=decode, workers=workers)
    if workers <= cores or decode == "device":
        check_workers(settings, cores)
        return
    with pytest.raises(UnsupportedError, match=rf"{workers} workers, but each rank has {cores} c"):
        check_workers(settings, cores)


@pytest.mark.parametrize("fetch", ["sample", "batch"])
def test_threads_deliver_in_order_whichever_is_ready_first(make_pairs, monkeypatch, fetch):
    dataset, quick = make_pairs(decode="host", fetch=fetch), threading.Event()
    order = Rows([[i % 24, 23 - i % 24] for i in range(40)])
    settings = {"start_method": "thread", "workers": 2, "fetch": fetch, "timeout_s": 60.0}
    read = dataset.read

    def slow_at_first(row, draw):
        if row == 0:
            assert quick.wait(20)  # the first batch is ready only after a later one
        elif row == 2:
            quick.set()
        return read(row, draw)

    monkeypatch.setattr(dataset, "read", slow_at_first)
    path = open_path(cpu.DeviceAdapter(0, 1), LoaderSettings(decode="host", **settings))
    found = list(path.batches(dataset, order))
    monkeypatch.setattr(dataset, "read", read)
    assert len(found) == len(order)
    for rows, batch in zip(order, found, strict=True):
        wanted = [dataset[row] for row in rows]
        assert all(
            torch.equal(batch[name], torch.stack([one[name] for one in wanted]))
            for name in ("pixel_values", "input_ids", "attention_mask")
        )


def test_an_error_in_a_thread_reaches_the_rank_and_its_threads_end(make_pairs, monkeypatch):
    dataset = make_pairs(decode="host")

    def damaged(row, draw):
        raise DataError(f"row {row}: cannot be decoded")

    monkeypatch.setattr(dataset, "read", damaged)
    settings = LoaderSettings(decode="host", start_method="thread", workers=2)
    path = open_path(cpu.DeviceAdapter(0, 1), settings)
    with pytest.raises(DataError, match="row 0: cannot be decoded"):
        list(path.batches(dataset, Rows([[0, 1], [3, 2]])))
    workers = [one for one in threading.enumerate() if one.name.startswith("loader")]
    for worker in workers:
        worker.join(20)
    assert not any(worker.is_alive() for worker in workers)
