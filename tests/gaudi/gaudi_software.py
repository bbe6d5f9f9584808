"""Jobs and programs in the Gaudi environment, on the stand-in for the device."""

import functools
import json
import os
import runpy
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import warm
from feedrate.config.devices import Device
from feedrate.config.spec import RunSpec, Software
from feedrate.results.assemble import build_record
from feedrate.results.record import Record
from tiny_spec import tiny_spec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-gaudi/bin/python"
STAND_IN = str(HERE / "standin")
PYTHONPATH = os.pathsep.join([STAND_IN, str(ROOT / "workflow")])
WITH_MEDIA = os.pathsep.join([str(ROOT / "tests/unit/loading/standin"), PYTHONPATH])
"""`PYTHONPATH` with the media pipeline beside."""
PATTERN = "(?i).*gaudi ?2.*"
MODULES = (
    *("habana_frameworks.torch", "optimum.habana.transformers.trainer", "optimum.habana"),
    "optimum.habana.transformers.modeling_utils",
    *("transformers.models.bridgetower.modeling_bridgetower", "transformers.models.clip"),
    *("torch.distributed.run", "torch.utils.tensorboard", "torch.utils.flop_counter"),
    *("msgspec", "pyarrow.parquet", "pyarrow.dataset", "PIL.JpegImagePlugin", "safetensors.torch"),
    "half_products",
)

make_prepared = runpy.run_path(str(ROOT / "tests/unit/conftest.py"))["make_prepared"]
"""Writes a dataset as small as training allows."""


FULL = {
    "train": {"gradient_accumulation": 2, "eval_batch_size": 2},  # batches of one shape: replays
    "evaluate": True,
    "save_checkpoints": True,
    "ceiling_s": 0.05,
}
"""A job with all that a job can do: accumulation, evaluation, checkpoints, ceilings."""


def make_spec(
    *,
    count: int = 1,
    launcher: str = "single",
    environment: dict[str, str] | None = None,
    hpu: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    loader: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **protocol: Any,
) -> RunSpec:
    """A tiny BridgeTower on `count` stand-ins, with batches of two; further settings by the part
    they belong to."""
    return tiny_spec(
        device="gaudi2",
        kind="hpu",
        count=count,
        launcher=launcher,
        software=Software(
            python=str(PYTHON), environment={"PYTHONPATH": PYTHONPATH, **(environment or {})}
        ),
        model=model,
        loader={"max_tokens": 6, **(loader or {})},  # as the texts: FLOPs are counted once
        train={"batch_size": 2, **(train or {})},
        hpu=hpu,
        protocol={"ceiling_s": 0.0, **protocol},
    )


@functools.cache
def warm_python() -> str:
    """The environment's Python with optimum-habana and the stand-in imported."""
    return warm.warm(str(PYTHON), MODULES, PYTHONPATH=STAND_IN)


def in_warm_processes(spec: RunSpec) -> RunSpec:
    """The same run with warm training processes."""
    software = msgspec.structs.replace(spec.software, python=warm_python())
    return msgspec.structs.replace(spec, software=software)


class Job:
    """A finished training job, run in warm processes as Snakemake's rule runs it."""

    def __init__(self, spec: RunSpec, prepared: Path, out: Path, *options: str) -> None:
        self.out = out
        spec = in_warm_processes(spec)
        pattern = ["--model-pattern", PATTERN] if spec.device == "gaudi2" else []
        integrations = ["--report-to", "tensorboard"]
        answer = subprocess.run(
            [
                *(warm.python(), "-m", "feedrate", "train"),
                *("--spec", msgspec.json.encode(spec).decode(), "--out", str(out)),
                *("--data", str(prepared / "manifest.json"), "--source-digest", "abc", *options),
                *(*pattern, *integrations),
            ],
            cwd=out.parent,  # its own project: jobs of other test workers do not keep it waiting
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.exit_code, self.stderr = answer.returncode, answer.stderr
        log = out / "train.log"
        self.log = log.read_text() if log.exists() else ""

    def events(self, name: str, rank: int = 0) -> list[dict[str, Any]]:
        """Events of a name."""
        path = self.out / ("events.jsonl" if rank == 0 else f"events.rank{rank}.jsonl")
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return [event for event in events if event["event"] == name]

    def metrics(self, name: str) -> dict[str, Any]:
        """A results file of the Trainer."""
        return json.loads((self.out / "trainer" / name).read_text())

    def record(self) -> Record:
        """The record, made as parse_logs makes it."""
        return parse_log(self.out)


def parse_log(run: Path) -> Record:
    """The record of a run's folder."""
    device = Device(label="Gaudi", kind="hpu", capabilities=[], model_pattern=PATTERN)
    return build_record(run, device)


def failed_checks(record: Record) -> dict[str, str]:
    """Checks that failed, but for those of other work on this machine, as of other tests."""
    others = ("alone_on_host", "undisturbed")
    return {c.name: c.detail for c in record.checks if not c.passed and c.name not in others}


def run_inside(program: str, *arguments: str, lines: Iterable[Any] = (), **environment: str) -> Any:
    """Run a program of the folder `inside` in the Gaudi environment, with `lines` as JSON on its
    input; what its last line of output says."""
    return json.loads(output_inside(program, *arguments, lines=lines, **environment)[-1])


def output_inside(
    program: str, *arguments: str, lines: Iterable[Any] = (), **environment: str
) -> list[str]:
    """The same; all lines of its output."""
    answer = subprocess.run(
        [warm_python(), str(HERE / "inside" / program), *arguments],
        input="".join(json.dumps(line) + "\n" for line in lines),
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return answer.stdout.splitlines()
