"""The program that tunes a device: its runs, its drain and their numbers together."""

import os
import sys
import time
from contextlib import suppress

import msgspec
import psutil
import pytest

import warm
from feedrate.cli import tune as tuning
from feedrate.config.plan import make_plan
from feedrate.config.spec import Software
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.core.processes import is_alive
from feedrate.data.manifest import store_spec
from feedrate.devices import launch
from feedrate.devices.host import host_lock, lock_name
from feedrate.flow.digests import DigestCache
from feedrate.flow.runs import Inputs
from feedrate.jobs import drain
from feedrate.jobs.drain import Loader, Refused
from feedrate.jobs.events import Ceiling, EventLog, Start, Window
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("own_lock")

SPEC = tiny_spec(
    protocol={"steps": 100, "warmup_steps": 6, "ceiling_s": 10, "evaluate": True},
)


def test_ranks_add_up_and_the_slowest_start_counts(tmp_path):
    for rank, rate in enumerate((100.0, 90.0)):
        loaders = [
            Loader("host", 1, rate, 0.1 + rank, cpu_s=0.01 * (1 + rank)),
            Loader("cache", 0, 10 * rate, 0.5),
        ]
        write_json(
            tmp_path / drain.ANSWER.format(rank),
            {
                "loaders": msgspec.to_builtins(loaders),
                "refused": [{"decode": "device", "why": "no"}],
                "cores": 1.5,
            },
        )
    drained = tuning.gather([tmp_path / drain.ANSWER.format(rank) for rank in (0, 1)])
    assert drained.loaders == [
        Loader("host", 1, 190.0, 1.1, cpu_s=pytest.approx(0.015)),
        Loader("cache", 0, 1900.0, 0.5),
    ]
    assert drained.cores == 3.0
    assert drained.refused == [Refused("device", "no")]


def test_the_runs_are_short():
    protocol = tuning.short(SPEC.changed("loader", scaled_decode=True)).protocol
    assert (protocol.steps, protocol.warmup_steps) == (36, 6)
    assert not protocol.evaluate
    changed = SPEC.changed("loader", decode="cache", workers=2)
    assert (changed.settings.loader.decode, changed.settings.loader.max_tokens) == ("cache", 8)
    assert changed.settings.model == SPEC.settings.model


def window(rank, wall_s, wait_s):
    values = {"first_step": 7, "last_step": 36, "steps": 30, "samples": 60}
    return Window(rank=rank, **values, wall_s=wall_s, data_wait_s=wait_s)


def test_rates_of_all_ranks_are_read_from_a_run(tmp_path):
    for rank, rate in enumerate((40, 30)):
        log = EventLog(tmp_path, rank)
        log.write(Start(rank=rank, world_size=2))
        log.write(window(rank, 2.0, 0.5))
        log.write(Ceiling(rank=rank, kind="loader", samples=9, wall_s=1, cpu_s=1))
        log.write(Ceiling(rank=rank, kind="model", samples=rate, wall_s=0.5, cpu_s=0.7))
    assert tuning.read_run(tmp_path) == tuning.Run(
        60.0, 80.0, tuning.Model(140.0, pytest.approx(0.02))
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(tuning.TuningError, match="no timed steps"):
        tuning.read_run(tmp_path / "empty")


def test_sharded_ranks_have_the_rate_of_their_steps_without_the_wait(tmp_path):
    """Copies are part of a step whatever the loader, so they stay in it."""
    for rank, wait_s in enumerate((0.5, 0.2)):
        copied = msgspec.structs.replace(window(rank, 2.5, wait_s), copy_wait_s=0.3)
        EventLog(tmp_path, rank).write(copied)
    assert tuning.read_run(tmp_path) == tuning.Run(48.0, 60.0, None)
    assert tuning.read_run(tmp_path, sharded=True) == tuning.Run(48.0, 60.0, tuning.Model(60.0))


@pytest.fixture
def stood_in(monkeypatch):
    """Runs and drains that cost nothing; the runs that were asked for."""
    runs = []

    def train(spec, manifest, folder):
        runs.append(spec)
        return tuning.Run(90.0, 95.0, tuning.Model(100.0, 0.01))

    drained = [Loader("host", 1, 200.0, 0.1), Loader("host", 0, 150.0, 0.1)]
    monkeypatch.setattr(tuning, "train", train)
    monkeypatch.setattr(tuning, "drain", lambda *_: tuning.Drained(drained, [], 4.0))
    return runs


@pytest.mark.parametrize(("strategy", "workers"), [("ddp", 0), ("fsdp", 2)])
def test_the_advice_on_a_run_of_any_strategy(stood_in, tmp_path, strategy, workers):
    train = msgspec.structs.replace(SPEC.settings.train, strategy=strategy)
    settings = msgspec.structs.replace(SPEC.settings, train=train)
    spec = tuning.short(msgspec.structs.replace(SPEC, settings=settings, count=2))
    lines, numbers = tuning.tune(spec, tmp_path / "manifest.json", tmp_path)
    first, check = (run.settings.loader for run in stood_in)
    assert (first.decode, first.workers) == ("host", workers)
    assert first.oversubscribe == (workers > 0), "a rank of one core has its loading beside too"
    assert (check.decode, check.workers) == ("host", 1)
    assert ("sharded" in lines[0]) == (strategy == "fsdp")
    assert "+5.6% off" in "\n".join(lines)
    assert lines[-1].startswith("Cores per device: ")
    assert numbers["use"] == {"decode": "host", "workers": 1}
    assert numbers["error"] == pytest.approx(95 / 90 - 1)


def test_no_loader_is_drained_if_the_run_refuses_its_settings(stood_in, tmp_path, monkeypatch):
    """So draining need not check the settings itself."""

    def refused(*_):
        raise tuning.TuningError("the run failed: hpu.minimize_memory: true needs fp8")

    monkeypatch.setattr(tuning, "train", refused)
    monkeypatch.setattr(tuning, "drain", lambda *_: pytest.fail("drained"))
    with pytest.raises(tuning.TuningError, match="needs fp8"):
        tuning.tune(SPEC, tmp_path / "manifest.json", tmp_path)


def test_no_loader_at_all_is_told(stood_in, tmp_path, monkeypatch):
    monkeypatch.setattr(
        tuning, "drain", lambda *_: tuning.Drained([], [Refused("host", "no libjpeg")], 4.0)
    )
    with pytest.raises(tuning.TuningError, match="no loader could be measured: no libjpeg"):
        tuning.tune(SPEC, tmp_path / "manifest.json", tmp_path)


def test_a_drain_that_fails_is_told_in_a_sentence(tiny_prepared, tmp_path, monkeypatch):
    def fail(command, **_options):
        raise tuning.subprocess.CalledProcessError(3, command)

    monkeypatch.setattr(tuning.subprocess, "run", fail)
    with pytest.raises(tuning.TuningError, match=r"loader-only .* exit code 3"):
        tuning.drain(SPEC, tiny_prepared / "manifest.json", tmp_path / "loaders")


def test_the_host_is_the_drains_own_while_it_lasts_and_then_free_for_a_run(
    tiny_prepared, tmp_path, monkeypatch
):
    def taken():
        told = []
        with suppress(InterruptedError), host_lock(lock_name(), told.append, stop):
            pass
        return bool(told)

    def stop():
        raise InterruptedError

    seen = []
    monkeypatch.setattr(tuning, "gather", lambda _files: None)
    monkeypatch.setattr(
        tuning.subprocess, "run", lambda _, *, pass_fds, **__: seen.append((taken(), len(pass_fds)))
    )
    tuning.drain(SPEC, tiny_prepared / "manifest.json", tmp_path / "loaders")
    assert seen == [(True, 1)]
    assert not taken()


def test_a_run_that_fails_is_told_with_its_cause(tiny_prepared, tmp_path, capfd):
    software = Software(python=warm.python())
    spec = tuning.short(msgspec.structs.replace(SPEC, kind="hpu", software=software))
    with pytest.raises(tuning.TuningError, match="decode: reference failed: "):
        tuning.train(spec, tiny_prepared / "manifest.json", tmp_path / "run")


def test_the_store_is_that_of_a_full_decode_whatever_the_first_run_decodes(project, tmp_path):
    plan, cache = make_plan(project), DigestCache(tmp_path / "digests.json")
    key, spec = next(iter(plan.runs.items()))
    scaled = spec.changed("loader", decode="host", scaled_decode=True)
    asked = Inputs(msgspec.structs.replace(plan, runs={key: scaled}), cache).of_tuning("cpu")
    cached = tuning.short(scaled).changed("loader", decode="cache").settings
    assert asked == [paths.STORE.format(dataset=spec.dataset, store=store_spec(cached).key)]
    assert asked == Inputs(plan, cache).of_tuning("cpu")


LAUNCHER = """
import subprocess, sys
rank = '''
import os, sys, time
from pathlib import Path
from feedrate.jobs.worker import bind_process
folder = Path(sys.argv[1])
bind_process(folder)
(folder / "rank.pid").write_text(str(os.getpid()))
time.sleep(100)
'''
sys.exit(subprocess.call([sys.executable, "-c", rank, sys.argv[1]]))
"""


def test_a_rank_that_hangs_ends_with_its_launcher(tmp_path, monkeypatch):
    """It would keep the device, and the host's lock, for which all later jobs would wait."""
    folder = tmp_path / "probe"
    command = [sys.executable, "-c", LAUNCHER, str(folder)]
    made = launch.Launch(command, dict(os.environ))
    monkeypatch.setattr(tuning.launch, "prepare", lambda *_: made)
    with pytest.raises(tuning.TuningError, match="physics took longer than"):
        tuning.run_ranks(SPEC, "probe", folder, [], "physics", 6)
    rank = int((folder / "rank.pid").read_text())
    deadline_s = time.monotonic() + 10
    while psutil.pid_exists(rank) and is_alive(psutil.Process(rank)):
        assert time.monotonic() < deadline_s, "the rank outlives its launcher"
        time.sleep(0.05)
