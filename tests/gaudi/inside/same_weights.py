"""A rank of a job (arguments of `feedrate worker`) that sums up what it has learned, in
`weights.<rank>.json` of the run's folder, in place of measuring the ceilings."""

import json
import sys
from pathlib import Path
from typing import Any

from feedrate.cli import jobs
from feedrate.devices.kinds.hpu import DeviceAdapter


def sum_up(spec: Any, device: Any, log: Any, trainer: Any, dataset: Any) -> None:
    """Numbers that are the same for the same weights only, and the kind of the wrapped model."""
    weights = [p.detach().double().abs().sum().item() for p in trainer.model.parameters()]
    facts = {"weights": weights, "wrapped": type(trainer.model_wrapped).__name__}
    path = Path(trainer.args.output_dir).parent / f"weights.{log.rank}.json"
    path.write_text(json.dumps(facts))


def prepare_process(spec: Any, folder: Path) -> None:
    """As always; after it the job can be imported."""
    prepare(spec, folder)
    from feedrate.jobs import train

    train.measure_ceilings = sum_up


prepare = DeviceAdapter.prepare_process
DeviceAdapter.prepare_process = prepare_process
sys.exit(jobs.run("worker", sys.argv[1:]))
