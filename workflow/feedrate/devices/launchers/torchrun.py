"""Several processes on one node, started by torchrun."""

from feedrate.config.spec import RunSpec

MAX_NODES = 1
DEFAULT_FOR = "processes"
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
SETS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def command(spec: RunSpec, python: str, module: list[str]) -> tuple[list[str], list[str]]:
    """torchrun as a module of the interpreter."""
    flags = ["--standalone", f"--nproc_per_node={spec.count}"]
    # Without the two dashes torchrun takes `--run` as its own option.
    return [], [python, "-m", "torch.distributed.run", *flags, "--module", "--", *module]
