"""Shares of the granted cores: their plan, and processes that really keep to them."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.devices import placement
from feedrate.devices.kinds import cuda
from feedrate.devices.placement import Cpu, Placement, bind_rank, plan_shares


@st.composite
def hosts(draw):
    """The granted part of a host of several nodes and cores of one or two threads."""
    threads = draw(st.integers(1, 2))
    cores = [(node, core) for node in range(draw(st.integers(1, 4))) for core in range(6)]
    cpus = [
        Cpu(node, node, node * 6 + core, (node * 6 + core) * threads + thread)
        for node, core in cores
        for thread in range(threads)
    ]
    return draw(st.lists(st.sampled_from(cpus), min_size=1, unique=True))


WANTED = st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=8)


@given(cpus=hosts(), wanted=WANTED)
def test_shares_are_fair_and_disjoint_and_cover_what_is_granted(cpus, wanted):
    shares = plan_shares(cpus, wanted)
    granted = sorted(cpu.number for cpu in cpus)
    assert len(shares) == len(wanted)
    if len(cpus) < len(wanted):
        assert all(len(share) == 1 and share[0] in granted for share in shares)
        assert sorted({n for share in shares for n in share}) == granted
        return
    assert sorted(n for share in shares for n in share) == granted
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(cpus=hosts(), wanted=WANTED)
def test_a_rank_gets_all_that_its_node_can_give_it(cpus, wanted):
    if len(cpus) < len(wanted):
        return
    node_of = {cpu.number: cpu.node for cpu in cpus}
    for rank, share in enumerate(plan_shares(cpus, wanted)):
        near = wanted.count(wanted[rank])
        there = sum(node == wanted[rank] for node in node_of.values())
        got = sum(node_of[n] == wanted[rank] for n in share)
        assert got >= min(len(share), there // near)


@pytest.mark.parametrize(
    ("granted", "cpus", "ranks", "cores"),
    [(8, range(8), 1, 8), (8, range(4), 2, 4), (3, range(8), 2, 1), (1, [0], 2, 1)],
)
def test_a_rank_has_its_cpus_or_its_part_of_a_smaller_quota(granted, cpus, ranks, cores):
    assert Placement(granted, list(cpus)).cores_of_rank(ranks) == cores


def test_siblings_stay_together_on_a_gaudi_server():
    """Two sockets of 40 cores and 80 threads, the second threads numbered from 80; modules 0 to 3
    on the first node."""
    cpus = [Cpu(c // 40, c // 40, c, c + t * 80) for c in range(80) for t in range(2)]
    shares = plan_shares(cpus, [0, 0, 0, 0, 1, 1, 1, 1])
    assert shares[0] == [*range(10), *range(80, 90)]
    assert shares[5] == [*range(50, 60), *range(130, 140)]
    crossed = plan_shares(cpus, [1, 1, 1, 1, 0, 0, 0, 0])
    assert crossed[0] == shares[4]


SAY = """
import json, os, sys
from feedrate.devices.placement import bind_rank
placement = bind_rank("cpu", int(sys.argv[1]), int(sys.argv[2]))
assert "torch" not in sys.modules
print(json.dumps([placement.granted, placement.cpus, sorted(os.sched_getaffinity(0)),
                  os.environ["OMP_NUM_THREADS"]]))
"""


def say(rank: int, ranks: int, prefix: tuple[str, ...] = (), threads: str = "99"):
    """What a process that binds itself says: granted, told and real CPUs, and its threads."""
    answer = subprocess.run(
        [*prefix, sys.executable, "-c", SAY, str(rank), str(ranks)],
        env={**os.environ, "OMP_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(answer.stdout)


def test_two_processes_share_the_cores_of_this_machine():
    mine = sorted(os.sched_getaffinity(0))
    answers = [say(rank, 2) for rank in range(2)]
    for granted, told, real, threads in answers:
        assert told == real
        assert 1 <= granted <= len(mine)
        assert int(threads) == len(real)  # 99 threads on a share would crowd it
    assert sorted({cpu for _, told, _, _ in answers for cpu in told}) == mine[: max(2, len(mine))]
    if len(mine) > 1:
        assert not set(answers[0][1]) & set(answers[1][1])


WORKERS = """
import os
from feedrate.__main__ import main
try:
    main(["--help"])
except SystemExit:
    pass
import torch
from feedrate.devices.placement import usable_cpus
torch.ones(500, 500) @ torch.ones(500, 500)  # OpenMP binds its threads
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(len(os.sched_getaffinity(0))).encode())
    os._exit(0)
print(os.read(reader, 9).decode(), len(os.sched_getaffinity(0)), len(usable_cpus()))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be narrowed")
@pytest.mark.parametrize(
    "site",
    [{"OMP_PROC_BIND": "true"}, {"OMP_PLACES": "{0}"}, {"GOMP_CPU_AFFINITY": "0"}],
    ids=str,
)
def test_loader_workers_keep_the_cores_whatever_a_site_sets_for_openmp(site):
    answer = subprocess.run(
        [sys.executable, "-c", WORKERS],
        env=os.environ | site,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    cores = str(len(os.sched_getaffinity(0)))
    assert answer.stdout.splitlines()[-1].split() == [cores] * 3


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be narrowed")
def test_processes_below_that_lost_cores_together_are_seen(monkeypatch):
    first, *_, last = sorted(os.sched_getaffinity(0))

    def asleep_on(cpu: int) -> subprocess.Popen[bytes]:
        bind = f"import os, time; os.sched_setaffinity(0, [{cpu}]); print(flush=True)"
        command = [sys.executable, "-c", f"{bind}; time.sleep(60)"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"\n"
        return process

    # Other tests of this process may have left servers running.
    monkeypatch.setattr(placement, "listed_descendants", lambda _: processes)
    processes = [asleep_on(first)]
    try:
        assert placement.usable_cpus() == {first}
        processes.append(asleep_on(last))
        assert placement.usable_cpus() == {first, last}
    finally:
        for process in processes:
            with process:
                process.kill()


def test_what_its_launcher_bound_stays_where_it_is(monkeypatch):
    """As under mpirun: the launcher has all CPUs, the rank less."""
    affinity = {0: {4, 5}, os.getppid(): set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity[pid])
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("bound anew"))
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    placement = bind_rank("cpu", 2, 4)
    assert placement.cpus == [4, 5]
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_rank_bound_outside_of_what_was_granted_comes_back(monkeypatch):
    """mpirun may not know of an affinity that was set by hand."""
    affinity = {0: {40, 41}, os.getppid(): set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity[pid])
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, to: affinity.update({pid: set(to)}))
    assert len(bind_rank("cpu", 1, 4).cpus) == 2
    assert affinity[0] <= set(range(8))


def test_a_kernel_that_forbids_binding_leaves_a_rank_where_it_is(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert bind_rank("cpu", 0, 2).cpus == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([1], [4, 5, 6, 7]),
        ([None], list(range(8))),
        ([5], list(range(8))),
        ([1, 0], list(range(8))),
    ],
)
def test_a_device_alone_is_fed_from_its_own_node(monkeypatch, nodes, expected):
    """On two nodes of four CPUs. Nothing is bound if the node is unknown or was not granted, or if
    the process sees several devices: a Gaudi job of one rank gets any of them."""
    affinity = {0: set(range(8)), os.getppid(): set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity[pid])
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, to: affinity.update({pid: set(to)}))
    cpus = [Cpu(number // 4, number // 4, number, number) for number in range(8)]
    monkeypatch.setattr(placement, "read_topology", lambda _: cpus)
    monkeypatch.setattr(cuda.DeviceAdapter, "numa_nodes", lambda _environment: nodes)
    assert bind_rank("cuda", 0, 1).cpus == expected
