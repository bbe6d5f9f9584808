"""Two ranks learn together under either strategy: their weights stay the same."""

import json
import os
import shutil
import subprocess

import msgspec
import pytest
from gaudi_software import HERE, PYTHONPATH, in_warm_processes, make_spec

from feedrate.core.files import write_json
from feedrate.devices import launch

LAUNCHERS = {"ddp": "torchrun", "fast_ddp": "mpirun"}
"""A launcher for each strategy, so that both have their turn."""


def train(spec, prepared, folder):
    """What each rank of a job has learned."""
    folder.mkdir()
    spec = in_warm_processes(spec)
    write_json(folder / "spec.json", msgspec.to_builtins(spec))
    module = ["same_weights", "--run", str(folder), "--data", str(prepared)]
    made = launch.prepare(spec, module, [folder, prepared], os.environ)
    answer = subprocess.run(
        made.command, env=made.environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-3000:]
    ranks = [folder / f"weights.{rank}.json" for rank in range(spec.count)]
    return [json.loads(path.read_text()) for path in ranks]


@pytest.fixture(scope="module")
def learned(prepared, tmp_path_factory):
    """What two ranks have learned, by strategy. The rate is so high that each step shows."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun: Open MPI is not installed (package openmpi-bin)")
    answers = {}
    for strategy, launcher in LAUNCHERS.items():
        spec = make_spec(
            count=2,
            launcher=launcher,
            train={"strategy": strategy, "learning_rate": 0.01, "gradient_accumulation": 2},
            environment={"PYTHONPATH": os.pathsep.join([str(HERE / "inside"), PYTHONPATH])},
            ceiling_s=0.05,  # `inside` sums up the weights in their place
        )
        answers[strategy] = train(spec, prepared, tmp_path_factory.mktemp(strategy) / "run")
    return answers


@pytest.mark.parametrize(
    ("strategy", "wrapped"),
    [("ddp", "DistributedDataParallel"), ("fast_ddp", "BridgeTowerForContrastiveLearning")],
)
def test_ranks_have_the_same_weights(learned, strategy, wrapped):
    first, second = learned[strategy]
    assert first["wrapped"] == second["wrapped"] == wrapped
    assert first["weights"] == second["weights"]


def test_both_strategies_learn_the_same(learned):
    """But for rounding: fast_ddp exchanges gradients in bf16."""
    ddp, fast = learned["ddp"][0]["weights"], learned["fast_ddp"][0]["weights"]
    assert ddp != fast
    assert sum(fast) == pytest.approx(sum(ddp), rel=0.02)
