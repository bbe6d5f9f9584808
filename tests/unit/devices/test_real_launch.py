"""Real jobs of two processes under each launcher: one process group, each on its own cores."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest
from job_specs import make_job

import warm
from feedrate.config.spec import RunSpec
from feedrate.core import variables
from feedrate.devices import launch
from feedrate.devices.host import parse_list
from feedrate.devices.launchers import srun


@pytest.fixture
def folder(tmp_path, tiny_prepared):
    """Where a job of `spec` runs, and the worker's arguments."""

    def _make(spec: RunSpec) -> tuple[Path, list[str]]:
        run = tmp_path / spec.launcher
        run.mkdir()
        (run / "spec.json").write_text(json.dumps(msgspec.to_builtins(spec)))
        module = ["feedrate", "worker", "--run", str(run), "--data", str(tiny_prepared)]
        return run, module

    return _make


def events(run: Path, rank: int) -> dict[str, dict]:
    """The last event of each name that a rank wrote."""
    name = f"events.rank{rank}.jsonl" if rank else "events.jsonl"
    lines = map(json.loads, (run / name).read_text().splitlines())
    return {event["event"]: event for event in lines}


def check_two_ranks(run: Path, ranks_on_host: int) -> None:
    told = [events(run, rank) for rank in range(2)]
    mine = os.sched_getaffinity(0)
    for one in told:
        assert one["end"]["ok"]
        assert one["start"]["world_size"] == 2
        assert one["start"]["cores_granted"] <= len(mine)
        cores = parse_list(one["start"]["cores"])
        assert set(cores) <= mine
        assert one["start"]["intraop_threads"] <= len(cores)
        if ranks_on_host == 1:
            assert set(cores) == mine
    if ranks_on_host == 2 and len(mine) > 1:
        first, second = (set(parse_list(one["start"]["cores"])) for one in told)
        assert not first & second
    # Each on rows of its own.
    assert told[0]["step"]["loss"] != told[1]["step"]["loss"]


def run_job(job: RunSpec, folder, **environment: str) -> tuple[Path, int]:
    run, module = folder(job)
    made = launch.prepare(job, module, [run], {**os.environ, **environment})
    ended = subprocess.run(
        made.command, env=made.environment, capture_output=True, text=True, timeout=170, check=False
    )
    return run, ended.returncode


def test_two_ranks_under_torchrun(folder):
    run, code = run_job(make_job("torchrun", 2, python=warm.python()), folder)
    assert code == 0
    check_two_ranks(run, 2)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed here")
def test_two_ranks_under_mpirun_as_inside_a_slurm_job(folder):
    """Slurm's variables of a step with one task, under which Open MPI alone finds one slot."""
    step = {"SLURM_JOBID": "7", "SLURM_NODELIST": "far-1", "SLURM_TASKS_PER_NODE": "1"}
    run, code = run_job(make_job("mpirun", 2), folder, **step)
    assert code == 0
    check_two_ranks(run, 2)


def test_two_nodes_find_each_other(folder, monkeypatch):
    """What srun starts on each node, without it: the second node is up first, and waits."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(srun, "meeting", lambda nodes: srun.Meeting("4711", "127.0.0.1", port))
    job = make_job("srun", 2, nodes=2, python=warm.python())
    run, module = folder(job)
    made = launch.prepare(job, module, [run], os.environ)
    command = made.command[made.command.index(warm.python()) :]
    nodes = [
        subprocess.Popen(command, env={**made.environment, "SLURM_NODEID": str(node)})
        for node in (1, 0)
    ]
    try:
        assert [node.wait(timeout=170) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.kill()
    check_two_ranks(run, 1)


def test_a_job_on_another_model_than_registered_is_a_fault_of_the_machine(folder):
    patterns = {variables.MODEL_PATTERNS: '{"cpu": "no such processor"}'}
    run, code = run_job(make_job(python=warm.python()), folder, **patterns)
    assert code == 1
    error = events(run, 0)["error"]
    assert error["infrastructure"]
    assert "asked for cpu (model_pattern 'no such processor') and got" in error["message"]
    assert "step" not in events(run, 0)
