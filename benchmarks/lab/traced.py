"""The same faults under TraceML (traceml-ai), which prints a diagnosis at the end of a run.

Its launcher starts plant.py in place of the product's supervisor, so each of these is a further
run. It is not installed with feedrate:
`pip install --no-deps --target DIR traceml-ai nvidia-ml-py`, then `make lab ARGS='--traceml DIR'`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.default_study import ROOT
from benchmarks.lab import plant
from benchmarks.lab.faults import Case
from benchmarks.lab.runs import PATH, Bench, beside, watch
from feedrate.core.files import write_json
from feedrate.core.paths import SPEC_NAME
from feedrate.devices.launch import launch_environment

TOOL = "traceml-ai"
START = "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())"
CLEAN_OF_A_SETUP = 2
"""Clean runs of a setup that are repeated under TraceML."""
LEAST = 40
"""Of each kind, the smallest grade from this one on is repeated under TraceML."""
ANSWERS = {
    "INPUT_BOUND": "input-bound",
    "H2D_BOUND": "input-bound",
    "COMPUTE_BOUND": "compute-bound",
    "RESIDUAL_HEAVY": "mixed",
    "STRAGGLER": "rank-bound",
    "INPUT_STRAGGLER": "rank-bound",
    "COMPUTE_STRAGGLER": "rank-bound",
    "H2D_STRAGGLER": "rank-bound",
}
"""TraceML's diagnoses in our words; others name no limit."""


def is_traced(case: Case) -> bool:
    """Whether a run is repeated under TraceML."""
    if case.fault is None:
        return case.number < CLEAN_OF_A_SETUP
    return case.grade == min((g for g in case.fault.grades if g >= LEAST), default=None)


def diagnose(bench: Bench, case: Case, library: Path) -> str:
    """TraceML's answer to a run; `failed` where it left none, as after a run without memory."""
    spec, folder = bench.spec(case), bench.folder / "traced" / case.name
    logs = folder / "logs"
    if not logs.is_dir():
        write_json(folder / SPEC_NAME, msgspec.to_builtins(spec))
        command = [sys.executable, "-c", START, "run", "--logs-dir", str(logs), "--run-name", "run"]
        command += ["--nproc-per-node", str(spec.count), str(Path(plant.__file__)), "--args"]
        command += ["--run", str(folder), "--data", str(bench.data)]
        foreign = beside(bench.lab, case)
        command += [] if foreign else ["--bare"]  # the meter tells when the window begins
        path = f"{library}{os.pathsep}{PATH}"
        made = {**launch_environment(spec, os.environ), "PYTHONPATH": path}
        with (folder / "traceml.log").open("w") as log:
            job = subprocess.Popen(command, env=made, cwd=ROOT, stdout=log, stderr=log)
            watch(job, folder, foreign, spec.protocol.warmup_steps)
    summary = next(logs.rglob("final_summary.json"), None)
    return answer(summary) if summary else "failed"


def answer(summary: Path) -> str:
    """The diagnosis in final_summary.json, in our words."""
    told: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
    return ANSWERS.get(str(told["primary_diagnosis"]["kind"]), "undecided")
