"""Commands and environments of the launchers."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_specs import make_job
from msgspec.structs import replace

from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.launchers import srun

MODULE = ["feedrate", "worker", "--run", "a b"]


def test_a_single_process_is_the_interpreter_itself():
    assert launch.launch_command(make_job(), MODULE) == [sys.executable, "-m", *MODULE]


def test_torchrun_on_one_node():
    command = launch.launch_command(make_job("torchrun", 8), MODULE)
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert command[3:] == ["--standalone", "--nproc_per_node=8", "--module", "--", *MODULE]


def test_mpirun_leaves_binding_to_the_ranks():
    """The options that would do it mean different things in Open MPI 4 and 5."""
    command = launch.launch_command(make_job("mpirun", 8, kind="hpu"), MODULE)
    assert command == [
        *("mpirun", "-n", "8", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"),
        *("--allow-run-as-root", sys.executable, "-m", *MODULE),
    ]


@pytest.fixture
def slurm(monkeypatch):
    monkeypatch.setattr(srun, "meeting", lambda nodes: ("4711", "10.0.0.5", 24711))


def test_several_nodes_are_one_torchrun_each_with_one_meeting_point(slurm):
    job = make_job("srun", 16, kind="cuda", nodes=2)
    command = launch.launch_command(job, MODULE)
    inside = command.index(sys.executable)
    assert command[:inside] == [
        *("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"),
        *("--overlap", "--cpu-bind=none", "--mpi=none", "--export=ALL"),
    ]
    assert command[inside + 1 :] == [
        *("-m", "feedrate", "node", "--nnodes=2", "--nproc_per_node=8"),
        *("--rdzv_backend=c10d", "--rdzv_endpoint=10.0.0.5:24711", "--rdzv_id=4711"),
        *("--module", "--", *MODULE),
    ]


def test_modules_are_loaded_on_every_node(slurm):
    job = make_job("srun", 16, kind="cuda", nodes=2, modules=["cuda/12.8"])
    command = launch.launch_command(job, MODULE)
    assert command.index("srun") < command.index("bash") < command.index(sys.executable)


def test_several_nodes_without_slurm_are_a_sentence(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(DeviceError, match=r"srun starts 2 nodes of a Slurm job, and this is none"):
        launch.launch_command(make_job("srun", 16, nodes=2), MODULE)


def test_threads_of_a_rank_are_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(launch, "cores_granted", lambda: 12)
    made = launch.launch_environment(make_job("torchrun", 4), {"HOME": "/h"})
    assert made["OMP_NUM_THREADS"] == "3"
    assert made["HOME"] == "/h"
    assert made["TOKENIZERS_PARALLELISM"] == "false"
    two_nodes = make_job("srun", 8, nodes=2)
    assert launch.launch_environment(two_nodes, {})["OMP_NUM_THREADS"] == "3"
    assert launch.launch_environment(make_job("torchrun", 99), {})["OMP_NUM_THREADS"] == "1"


def test_threads_on_a_cpu_wait_without_spinning_unless_the_user_says_so():
    assert launch.launch_environment(make_job(), {})["OMP_WAIT_POLICY"] == "PASSIVE"
    user = {"OMP_WAIT_POLICY": "ACTIVE"}
    assert launch.launch_environment(make_job(), user)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "OMP_WAIT_POLICY" not in launch.launch_environment(make_job(kind="cuda"), {})


def test_a_limit_on_addresses_is_no_limit_on_threads():
    job = make_job()
    train = replace(job.settings.train, memory_gib=1.5)
    limited = replace(job, settings=replace(job.settings, train=train))
    assert launch.launch_environment(limited, {})["MALLOC_ARENA_MAX"] == "1"
    assert "MALLOC_ARENA_MAX" not in launch.launch_environment(job, {})


@pytest.mark.parametrize(
    ("visible", "count", "expected"),
    [(None, 2, "0,1"), ("3,5,7", 2, "3,5"), ("4", 1, "4"), ("GPU-a,GPU-b", 1, "GPU-a")],
)
def test_a_job_sees_no_more_gpus_than_it_has_ranks(visible, count, expected):
    given_environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    made = launch.launch_environment(make_job("torchrun", count, kind="cuda"), given_environment)
    assert made["CUDA_VISIBLE_DEVICES"] == expected
    assert made["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_gpus_of_other_nodes_are_left_to_slurm():
    made = launch.launch_environment(make_job("srun", 16, kind="cuda", nodes=2), {})
    assert "CUDA_VISIBLE_DEVICES" not in made


def test_gaudi_runs_in_the_mode_of_its_settings_whatever_the_shell_says():
    def mode(name: str) -> str:
        job = make_job("mpirun", 8, kind="hpu", mode=name)
        return launch.launch_environment(job, {"PT_HPU_LAZY_MODE": "7"})["PT_HPU_LAZY_MODE"]

    assert [mode("lazy"), mode("eager"), mode("compile")] == ["1", "0", "0"]


@pytest.fixture
def gaudis(machine):
    """Eight cards whose module numbers count down; what a job gets of HABANA_VISIBLE_DEVICES."""
    for number in range(8):
        folder = machine / f"sys/class/accel/accel{number}/device"
        folder.mkdir(parents=True)
        (folder / "module_id").write_text(f"{7 - number}\n")
    (machine / "sys/class/accel/accel_controlD0").mkdir()
    (machine / "dev/accel").mkdir()

    def _launch(granted: str, opened: range = range(8), nodes: int = 1, **given: str):
        for number in opened:
            (machine / f"dev/accel/accel{number}").touch()
        count = len(granted.split(",")) * nodes
        job = make_job("torchrun" if nodes == 1 else "srun", count, kind="hpu", nodes=nodes)
        made = launch.launch_environment(job, {"HABANA_VISIBLE_DEVICES": granted, **given})
        return made.get("HABANA_VISIBLE_MODULES"), made.get("HLS_MODULE_ID")

    return _launch


@pytest.mark.parametrize(
    ("granted", "opened", "expected"),
    [
        ("4,6", range(8), ("3,1", None)),
        ("5", range(8), ("2", "2")),
        ("0,1", range(4, 6), ("3,2", None)),  # Slurm counts the open ones
        ("0,1,2,3,4,5,6,7", range(8), (None, None)),  # rank and module are the same
        ("2,9", range(8), (None, None)),
        ("all", range(8), (None, None)),
    ],
)
def test_ranks_on_a_part_of_a_gaudi_node_get_the_granted_modules(gaudis, granted, opened, expected):
    assert gaudis(granted, opened, HLS_MODULE_ID="6") == expected


def test_named_modules_of_gaudi_stand_above_granted_cards(gaudis):
    assert gaudis("4,6", HABANA_VISIBLE_MODULES="5,0") == ("5,0", None)
    assert gaudis("4", HABANA_VISIBLE_MODULES="5") == ("5", "5")
    assert gaudis("4", HABANA_VISIBLE_MODULES="5,0") == ("5,0", None)


def test_modules_of_other_gaudi_nodes_are_not_known(gaudis):
    assert gaudis("4,6", nodes=2) == (None, None)


def test_ranks_under_mpirun_meet_where_optimum_habanas_do():
    made = launch.launch_environment(make_job("mpirun", 8, kind="hpu"), {})
    assert (made["MASTER_ADDR"], made["MASTER_PORT"]) == ("localhost", "29500")
    chosen = launch.launch_environment(make_job("mpirun", 8), {"MASTER_PORT": "1234"})
    assert chosen["MASTER_PORT"] == "1234"


def test_what_an_outer_launcher_said_does_not_reach_a_job():
    outer = {"RANK": "3", "LOCAL_RANK": "3", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "0"}
    outer |= {"SLURM_JOBID": "7", "SLURM_JOB_ID": "7", "HOME": "/h"}
    made = launch.launch_environment(make_job("mpirun", 2), outer)
    assert not set(made) & (set(outer) - {"HOME"})
    # Without them srun would not find the job.
    assert launch.launch_environment(make_job("srun", 2, nodes=2), outer)["SLURM_JOB_ID"] == "7"


def test_the_registrys_variables_stand_above_all_others():
    job = make_job(environment={"OMP_NUM_THREADS": "1", "HOME": "/there"})
    made = launch.launch_environment(job, {"HOME": "/h"})
    assert (made["OMP_NUM_THREADS"], made["HOME"]) == ("1", "/there")


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


MATTER = ["OMP_NUM_THREADS", "PT_HPU_LAZY_MODE", "NCCL_DEBUG", "HABANA_VISIBLE_DEVICES", "CUDA_X"]


@given(st.dictionaries(st.sampled_from([*MATTER, "HOME", "HF_TOKEN", "PATH"]), st.text()))
def test_only_variables_that_matter_for_speed_are_recorded(environment):
    told = launch.recorded_environment(environment)
    assert told == {k: v for k, v in environment.items() if k in MATTER}
