"""Commands and environments of the launchers."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.devices import launch

MODULE = ["feedrate.train.worker", "--run", "a b"]


def test_a_single_process_is_the_interpreter_itself():
    assert launch.launch_command("single", 1, 2, MODULE) == [sys.executable, "-m", *MODULE]


def test_torchrun_on_one_node():
    command = launch.launch_command("torchrun", 8, 2, MODULE)
    assert command[:5] == [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=8",
    ]
    assert command[5:] == ["--module", "--", *MODULE]


def test_mpirun_has_the_published_form():
    command = " ".join(launch.launch_command("mpirun", 8, 6, MODULE))
    assert command.startswith(
        "mpirun -n 8 --bind-to core --map-by socket:PE=6 --rank-by slot --report-bindings "
        "--allow-run-as-root "
    )


def test_threads_of_a_rank_are_its_share_of_the_cores():
    made = launch.launch_environment("cpu", "torchrun", 2, 3, {"HOME": "/h"})
    assert made["OMP_NUM_THREADS"] == "3"
    assert made["HOME"] == "/h"
    assert made["TOKENIZERS_PARALLELISM"] == "false"


def test_threads_on_a_cpu_wait_without_spinning_unless_the_user_says_so():
    assert launch.launch_environment("cpu", "single", 1, 2, {})["OMP_WAIT_POLICY"] == "PASSIVE"
    user = {"OMP_WAIT_POLICY": "ACTIVE"}
    assert launch.launch_environment("cpu", "single", 1, 2, user)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "OMP_WAIT_POLICY" not in launch.launch_environment("cuda", "single", 1, 2, {})


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [(None, 2, "0,1"), ("3,5,7", 2, "3,5"), ("4", 1, "4"), ("GPU-a,GPU-b", 1, "GPU-a")],
)
def test_a_job_sees_no_more_gpus_than_it_has_ranks(visible, count, expected):
    given_environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    made = launch.launch_environment("cuda", "single", count, 1, given_environment)
    assert made["CUDA_VISIBLE_DEVICES"] == expected


def test_gaudi_runs_lazily_unless_the_user_says_otherwise():
    assert launch.launch_environment("hpu", "mpirun", 8, 1, {})["PT_HPU_LAZY_MODE"] == "1"
    eager = launch.launch_environment("hpu", "mpirun", 8, 1, {"PT_HPU_LAZY_MODE": "0"})
    assert eager["PT_HPU_LAZY_MODE"] == "0"
    assert eager["MASTER_ADDR"] == "localhost"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1, 0, 1)),
        (
            {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"},
            (9, 16, 1, 8),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
            },
            (3, 8, 3, 8),
        ),
    ],
)
def test_ranks_are_read_as_the_launchers_tell_them(environment, expected):
    assert launch.rank_from_environment(environment) == expected


@given(st.dictionaries(st.sampled_from([*launch.MATTERS, "HOME", "HF_TOKEN"]), st.text()))
def test_only_variables_that_matter_for_speed_are_told(environment):
    told = launch.told_environment(environment)
    assert told == {k: v for k, v in environment.items() if k not in ("HOME", "HF_TOKEN")}
