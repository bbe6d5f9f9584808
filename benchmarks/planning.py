"""Planning and a nothing-to-do call against a bare Snakefile with the same number of jobs.

Its training rule has the parts of ours: a log, a thread count and one param. Both compare times
only, as our profiles say.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import yaml

from benchmarks.default_study import copy_project
from benchmarks.figure import Figure
from benchmarks.process import run

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
SIZES = (100, 1_000, 10_000)
PAIRS = {100: 5, 1_000: 3, 10_000: 1}
GOAL = 1.2
MEMORY = Path("/dev/shm")  # in memory: planning is timed, not the disk

TOUCH = """
import snakemake.executors.touch as touch
touch.Executor.SLEEPING_TIME = 0.0  # otherwise 0.1 s per job: 17 minutes at 10,000 cells
from snakemake.cli import main
main()
"""

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
    """Ratios of wall time and peak memory at 100, 1,000 and 10,000 cells (one repeat each)."""
    for cells in SIZES:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            ours, bare = Path(folder) / "ours", Path(folder) / "bare"
            _make_ours(ours, cells)
            _make_bare(bare, cells)
            yield from _compare(f"planning, {cells:,} cells", ours, bare, cells)
            for project in (ours, bare):
                _pretend_done(project)
            yield from _compare(f"nothing to do, {cells:,} cells", ours, bare, cells)


def _compare(name: str, ours: Path, bare: Path, cells: int) -> Iterator[Figure]:
    arguments = ["--dry-run", "--quiet", "all", "--cores", "2", "--scheduler", "greedy"]
    command, pairs = [*SNAKEMAKE, *arguments, "--rerun-triggers", "mtime"], []
    for _ in range(PAIRS[cells]):
        pairs.append([run(command, project, _env(project)) for project in (ours, bare)])
    times = median(a.wall_s / b.wall_s for a, b in pairs)
    memory = median(a.peak_mib / b.peak_mib for a, b in pairs)
    last, plain = pairs[-1]
    note = f"{last.wall_s:.1f} s, {plain.wall_s:.1f} s"
    yield Figure(f"{name}: time", times, GOAL, "x bare", note)
    note = f"{last.peak_mib:.0f} MiB, {plain.peak_mib:.0f} MiB"
    yield Figure(f"{name}: memory", memory, GOAL, "x bare", note)


def _env(project: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(project / "workflow"), "HOME": str(project)}


def _make_ours(folder: Path, cells: int) -> None:
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


def _make_bare(folder: Path, cells: int) -> None:
    folder.mkdir()
    (folder / "Snakefile").write_text(BARE.format(workers=cells // 10))


def _pretend_done(project: Path) -> None:
    """Make every file of the plan, and let Snakemake record it as done without running a job."""
    listing = [*SNAKEMAKE, "--dry-run", "--quiet", "all", "--cores", "2", "--summary"]
    run(listing, project, _env(project))
    lines = (project / ".benchmark.log").read_text().splitlines()
    for line in lines:
        name = line.split("\t")[0]
        if name.startswith(("runs/", "results/", "resources/")):
            path = project / name
            if not path.suffix:  # a folder of pages
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            outcome = '{"attempt": 1, "status": "ok"}\n'
            path.write_text(outcome if path.name == "outcome.json" else "{}\n")
    # All ready jobs at once: with two at a time, the scheduler searches all of them each time.
    touch = [sys.executable, "-c", TOUCH, "--touch", "--forceall", "--cores", "100000"]
    touch += ["--scheduler", "greedy"]
    if (project / "config").is_dir():
        touch += ["--set-threads", "train_cpu=1"]
    run(touch, project, _env(project))
