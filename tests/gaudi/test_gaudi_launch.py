"""Eight cards by mpirun, next to optimum-habana's own launcher; and two ranks for real."""

import pytest
from gaudi_software import PYTHON, failed_checks, in_warm_processes, make_spec, run_inside

from feedrate.devices import launch
from feedrate.devices.placement import Cpu, plan_shares

HOSTS = [(2, 32, 8), (2, 40, 8), (2, 26, 4), (1, 64, 8), (2, 56, 2), (8, 1, 8), (16, 1, 8)]
"""Sockets, cores a socket, and ranks; the last two are virtual machines."""
MODULE = ["feedrate", "worker", "--run", "out"]


@pytest.fixture(scope="module")
def theirs():
    """What the library's launcher builds on each of the hosts."""
    answers = run_inside(
        "gaudi_spawn_command.py", lines=HOSTS, PATH=f"{PYTHON.parent}:/usr/bin:/bin"
    )
    return dict(zip(HOSTS, answers, strict=True))


def cpus(sockets: int, cores: int) -> list[Cpu]:
    """Two logical CPUs a core, where a socket has more than one."""
    threads = 1 if cores == 1 else 2
    total = sockets * cores
    return [
        Cpu(node=core // cores, socket=core // cores, core=core, number=core + total * thread)
        for core in range(total)
        for thread in range(threads)
    ]


@pytest.mark.parametrize("host", HOSTS)
def test_mpirun_starts_what_the_librarys_launcher_starts(theirs, host):
    """But for its options of binding, which the ranks do themselves."""
    spec = in_warm_processes(make_spec(count=host[2], launcher="mpirun"))
    ours, library = launch.launch_command(spec, MODULE), theirs[host]["command"]
    assert ours[:3] == library[:3]
    assert ours[-len(MODULE) - 2 :] == [library[-1], "-m", *MODULE]


@pytest.mark.parametrize("host", HOSTS)
def test_each_rank_has_as_many_cores_as_under_the_librarys_launcher(theirs, host):
    sockets, cores, ranks = host
    (mapped,) = (word for word in theirs[host]["command"] if ":PE=" in word)
    granted = cpus(sockets, cores)
    core_of = {cpu.number: cpu.core for cpu in granted}
    shares = plan_shares(granted, [None] * ranks)
    assert {len({core_of[n] for n in share}) for share in shares} == {int(mapped.split("=")[1])}


def test_ranks_meet_where_the_librarys_do(theirs):
    made = launch.launch_environment(make_spec(count=8, launcher="mpirun"), {})
    for answer in theirs.values():
        assert {name: made[name] for name in answer["environment"]} == {
            name: str(value) for name, value in answer["environment"].items()
        }


def test_two_ranks_train_together_under_mpirun(two_ranks):
    assert (two_ranks.exit_code, two_ranks.stderr.count("failed")) == (0, 0), two_ranks.log[-3000:]
    for rank in (0, 1):
        (start,) = two_ranks.events("start", rank)
        assert start["world_size"] == 2
        (window,) = two_ranks.events("window", rank)
        assert (window["steps"], window["samples"]) == (3, 6)
    # The library counts both ranks: 2 x 3 steps of 2 samples in its own rate.
    metrics = two_ranks.metrics("train_results.json")
    rate, steps = metrics["train_samples_per_second"], metrics["train_steps_per_second"]
    assert rate / steps == pytest.approx(4, rel=0.01)


def test_each_rank_reads_rows_of_its_own(two_ranks):
    losses = [[step["loss"] for step in two_ranks.events("step", rank)] for rank in (0, 1)]
    assert losses[0] != losses[1]


def test_a_record_of_two_ranks_counts_both(two_ranks):
    record = two_ranks.record()
    assert failed_checks(record) == {}
    assert record.measurement.samples == 12
