"""A measurement on every rank of a run: the host's lock, and how it fails."""

import os
import sys
import time
from contextlib import suppress

import psutil
import pytest

from feedrate.core.errors import ExpectedError
from feedrate.core.processes import is_alive
from feedrate.devices import launch
from feedrate.devices.host import host_lock
from tiny_spec import tiny_spec

pytestmark = pytest.mark.usefixtures("own_project")

SPEC = tiny_spec()


def test_a_measurement_that_fails_is_told_in_a_sentence(tmp_path, monkeypatch):
    def fail(command, **_options):
        raise launch.subprocess.CalledProcessError(3, command)

    monkeypatch.setattr(launch.subprocess, "run", fail)
    with pytest.raises(ExpectedError, match=r"physics failed with exit code 3"):
        launch.run_ranks(SPEC, "probe", tmp_path / "probe", [], "physics", 6)


def test_the_host_is_its_own_while_it_lasts_and_then_free_for_a_run(tmp_path, monkeypatch):
    def taken():
        told = []
        with suppress(InterruptedError), host_lock(told.append, stop):
            pass
        return bool(told)

    def stop():
        raise InterruptedError

    seen = []
    monkeypatch.setattr(
        launch.subprocess, "run", lambda _, *, pass_fds, **__: seen.append((taken(), len(pass_fds)))
    )
    launch.run_ranks(SPEC, "probe", tmp_path / "probe", [], "physics", 6)
    assert seen == [(True, 2)]
    assert not taken()


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
    monkeypatch.setattr(launch, "prepare", lambda *_: made)
    with pytest.raises(ExpectedError, match="physics took longer than"):
        launch.run_ranks(SPEC, "probe", folder, [], "physics", 6)
    rank = int((folder / "rank.pid").read_text())
    deadline_s = time.monotonic() + 10
    while psutil.pid_exists(rank) and is_alive(psutil.Process(rank)):
        assert time.monotonic() < deadline_s, "the rank outlives its launcher"
        time.sleep(0.05)
