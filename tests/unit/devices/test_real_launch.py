"""Real jobs of two processes under each launcher: one process group, each on its own cores."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from job_specs import make_job

import warm
from feedrate.config.spec import RunSpec
from feedrate.devices import launch
from feedrate.devices.host import parse_list
from feedrate.devices.launchers import srun

WORKFLOW = str(Path(launch.__file__).parents[2])


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


def run_job(job: RunSpec, folder, *options: str, **environment: str) -> tuple[Path, int]:
    run, module = folder(job)
    made = launch.prepare(job, [*module, *options], [run], {**os.environ, **environment})
    ended = subprocess.run(
        made.command, env=made.environment, capture_output=True, text=True, timeout=170, check=False
    )
    return run, ended.returncode


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed here")
def test_two_ranks_under_mpirun_as_inside_a_slurm_job(folder):
    """Slurm's variables of a step with one task, under which Open MPI alone finds one slot."""
    step = {"SLURM_JOBID": "7", "SLURM_NODELIST": "far-1", "SLURM_TASKS_PER_NODE": "1"}
    run, code = run_job(make_job("mpirun", 2, python=warm.python()), folder, **step)
    assert code == 0
    check_two_ranks(run, 2)


BIND = """
import os, sys
from pathlib import Path
from feedrate.devices import host
from feedrate.devices.placement import bind_rank
host.SYS = Path(sys.argv[1])
rank = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
(host.SYS / f"rank{rank}").write_text(",".join(map(str, bind_rank("hpu", rank, 2).cpus)))
"""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed here")
@pytest.mark.parametrize("crossed", [False, True])
def test_under_mpirun_each_rank_gets_the_cores_next_to_its_card(tmp_path, crossed):
    """Two cards, each next to one half of this machine's cores."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one core has no halves")
    halves = [cpus[: len(cpus) // 2], cpus[len(cpus) // 2 :]]
    for number, half in enumerate(halves):
        node = tmp_path / f"devices/system/node/node{number}"
        card = tmp_path / f"class/accel/accel{number}/device"
        for made in (node, card):
            made.mkdir(parents=True)
        (node / "cpulist").write_text(",".join(map(str, half)))
        (card / "module_id").write_text(str(number))
        (card / "numa_node").write_text(str(1 - number if crossed else number))
    job = make_job("mpirun", 2, kind="hpu", python=sys.executable)
    command = launch.launch_command(job, [])
    command = [*command[: command.index(sys.executable) + 1], "-c", BIND, str(tmp_path)]
    environment = {**launch.launch_environment(job, os.environ), "PYTHONPATH": WORKFLOW}
    subprocess.run(command, env=environment, check=True, timeout=60)
    told = [parse_list((tmp_path / f"rank{rank}").read_text()) for rank in range(2)]
    assert told == (halves[::-1] if crossed else halves)


def test_two_nodes_find_each_other(folder, monkeypatch):
    """What srun starts on each node, without it: the second node is up first, and waits."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(srun, "meeting", lambda nodes: ("4711", "127.0.0.1", port))
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
