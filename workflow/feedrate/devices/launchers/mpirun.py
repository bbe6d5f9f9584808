"""Several processes on one node, started by Open MPI.

Each rank binds itself to cores near its own device (see placement.py). Open MPI's options for this
differ: to give neighbouring ranks one socket, version 4 needs `--rank-by core` and version 5
`--rank-by slot`, and neither knows where the devices are.
"""

from collections.abc import Mapping

from feedrate.config.spec import RunSpec

MAX_NODES = 1
PROGRAM = "mpirun"
MISSING = "install Open MPI or load its module (software.modules), or use launcher: torchrun"
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
)  # fmt: skip
SETS = ("OMPI_*", "PMI_*", "PMIX_*")
HIDES = ("SLURM_*",)
"""In a Slurm job, Open MPI would take the step's number of tasks, which is one, as its slots."""


def command(spec: RunSpec, python: str, module: list[str]) -> tuple[list[str], list[str]]:
    """mpirun with one process per device, also on fewer cores than that, and without binding."""
    placed = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "--allow-run-as-root"]
    return [], [PROGRAM, "-n", str(spec.count), *placed, python, "-m", *module]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The ranks' meeting point, which Open MPI does not set."""
    port = environment.get("MASTER_PORT", "29500")  # the default of optimum-habana 1.21.2
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
