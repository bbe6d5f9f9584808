"""Planning and a nothing-to-do call against a bare Snakefile with the same number of jobs.

Its training rule has the parts of ours: a log, a thread count and one param. Both compare times
only, as our profiles say. CPU time counts: other programs change the wall time of both.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import yaml

from benchmarks.default_study import copy_project
from benchmarks.figure import Figure
from benchmarks.process import Usage, run

SNAKEMAKE = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "all", "--cores", "2"]
SNAKEMAKE += ["--scheduler", "greedy", "--rerun-triggers", "mtime"]
PAIRS = {100: 5, 1_000: 3, 10_000: 1}
"""Pairs of calls, by the number of cells."""
GOAL = 1.2
MEMORY = Path("/dev/shm")  # in memory: planning is timed, not the disk

BARE = """
CELLS = [f"workers={{w}},batch={{b}}" for w in range({workers}) for b in range(1, 11)]

rule all:
    input: "results/results.csv", "report.html"

rule prepare:
    output: "resources/manifest.json"
    shell: "touch {{output}}"

rule train:
    input: "resources/manifest.json"
    output: "results/{{study}}/{{device}}/{{cell}}/rep{{repeat}}/outcome.json"
    log: "results/{{study}}/{{device}}/{{cell}}/rep{{repeat}}/train.log"
    threads: 2
    params: settings={{"steps": 10}}
    shell: "touch {{output}}"

rule parse:
    input: expand("results/scale/cpu/{{cell}}/rep1/outcome.json", cell=CELLS)
    output: "results/scale/cpu/records.json"
    shell: "touch {{output}}"

rule collect:
    input: "results/scale/cpu/records.json"
    output: "results/results.csv"
    shell: "touch {{output}}"

rule page:
    input: "results/results.csv"
    output: "report.html"
    shell: "touch {{output}}"
"""


def measure() -> Iterator[Figure]:
    """Ratios of CPU time and peak memory at 100, 1,000 and 10,000 cells (one repeat each)."""
    for cells in PAIRS:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            ours, bare = make_ours(Path(folder, "ours"), cells), Path(folder, "bare")
            bare.mkdir()
            (bare / "Snakefile").write_text(BARE.format(workers=cells // 10))
            yield from compare("planning", ours, bare, cells)
            for project in (ours, bare):
                pretend_done(project)
            yield from compare("nothing to do", ours, bare, cells)


def compare(name: str, ours: Path, bare: Path, cells: int) -> Iterator[Figure]:
    """Ratios of alternating calls; the first ones compile modules and do not count."""
    calls = [[plan(ours), plan(bare)] for _ in range(1 + PAIRS[cells])][1:]
    last, plain = calls[-1]
    times, memory = (median(a.cpu_s / b.cpu_s for a, b in calls), last.peak_mib / plain.peak_mib)
    name, note = f"{name}, {cells:,} cells", f"{last.cpu_s:.1f} s, {plain.cpu_s:.1f} s"
    yield Figure(f"{name}: CPU time", times, GOAL, "x bare", note)
    note = f"{last.peak_mib:.0f} MiB, {plain.peak_mib:.0f} MiB"
    yield Figure(f"{name}: memory", memory, GOAL, "x bare", note)


def plan(project: Path, *options: str) -> Usage:
    """A call of Snakemake that starts nothing."""
    variables = {"PYTHONPATH": str(project / "workflow"), "HOME": str(project)}
    return run([*SNAKEMAKE, *options], project, variables | {"PYTHONDONTWRITEBYTECODE": ""})


def make_ours(folder: Path, cells: int) -> Path:
    """The project with one study of `cells` cells."""
    folder.mkdir()
    copy_project(folder)
    study = {
        "title": "Scale",
        "question": "How long does planning take?",
        "source": {"title": "none"},
        "settings": {"model": {"name": "bridgetower", "size": "tiny"}},
        "protocol": {"steps": 10, "warmup_steps": 2, "repeats": 1},
        "factors": {
            "workers": {"sets": "loader.workers", "levels": list(range(cells // 10))},
            "batch": {"sets": "train.batch_size", "levels": list(range(1, 11))},
        },
        "baseline": {"workers": 0, "batch": 1},
    }
    (folder / "config/studies/scale.yaml").write_text(json.dumps(study))
    config = folder / "config/config.yaml"
    values = yaml.safe_load(config.read_text()) | {"studies": ["scale"], "repeats": 1}
    config.write_text(yaml.safe_dump(values))
    return folder


def pretend_done(project: Path) -> None:
    """Make every file of the plan, all with the same time: none is newer than another."""
    plan(project, "--summary")
    now_s = time.time()
    for line in (project / ".benchmark.log").read_text().splitlines():
        path = project / line.split("\t")[0]
        if "\t" not in line or path.name == "output_file":
            continue
        if not path.suffix:  # a folder of pages
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"status": "ok"}\n' if path.name == "outcome.json" else "{}\n")
        os.utime(path, (now_s, now_s))
