"""Workers of the loaders: how they start, what they may use, and how their end is told."""

import os
import signal
import time
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.devices.base import UnsupportedError
from feedrate.jobs.worker import classify
from feedrate.loading.path import HostPath
from feedrate.loading.workers import check_workers, start_worker


class Threads:
    """A dataset whose samples tell of the worker that made them."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"threads": torch.tensor([torch.get_num_threads(), os.getpid()])}


def test_workers_have_one_thread_and_keep_the_trainers_seeding(capfd):
    start = partial(start_worker, seed=lambda worker: print(f"seeded {worker}", flush=True))
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
