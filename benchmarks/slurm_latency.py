"""Twenty short jobs on a real Slurm with our profile's settings, against plain and no Slurm.

The cluster is the tests' own: virtual nodes on this machine. It is started if it is not running.
Every Snakemake job on Slurm starts Snakemake twice, and here all jobs share this machine's cores.
The time until Slurm had done all the work is therefore reported next to the total.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.slurm.cluster import Cluster, NoSlurmHere, install

from benchmarks.default_study import ROOT
from benchmarks.figure import Figure
from benchmarks.process import median_ratio, run

JOBS = 20
ROUNDS = 3
PARTITION = "cpu"
SNAKEFILE = f"""
rule all:
    input: expand("out/{{n}}", n=range({JOBS}))

rule short:
    output: "out/{{n}}"
    localrule: config["here"]
    shell: "touch {{output}}"
"""
ONE_PROJECT_ONLY = ("configfile", "set-resources", "logger")
"""Keys of the profile that refer to this project's rules, config and display."""

GOAL_PLAIN = 3.0
"""Snakemake's own start takes longer than Slurm needs for all of the jobs."""
GOAL_LOCAL = 1.2
GOAL_SENT = 1.5
LONGEST_S = 300.0


def measure() -> Iterator[Figure]:
    """Ratios of interleaved rounds: of short rules on the driver's host, as in the profile; and of
    the same rules as Slurm jobs, over the time until Slurm itself had done their work."""
    try:
        install()
    except NoSlurmHere as reason:
        print(f"slurm_latency is left out: {reason}")
        return
    with tempfile.TemporaryDirectory() as name, _cluster(Path(name) / "cluster"):
        rounds = [_round(Path(name) / str(number)) for number in range(ROUNDS)]
    plain, local, here, sent, done = zip(*rounds, strict=True)
    yield Figure(
        f"{JOBS} short rules, profile slurm, against plain sbatch",
        median_ratio(here, plain),
        GOAL_PLAIN,
        "x sbatch",
        _note(here, plain),
    )
    yield Figure(
        f"{JOBS} short rules, profile slurm, against local",
        median_ratio(here, local),
        GOAL_LOCAL,
        "x local",
        _note(here, local),
    )
    yield Figure(
        f"{JOBS} short rules sent to Slurm, against its last end",
        median_ratio(sent, done),
        GOAL_SENT,
        "x Slurm",
        f"{_note(sent, done)}; {median_ratio(sent, plain):.0f} x sbatch",
    )


def _round(folder: Path) -> tuple[float, float, float, float, float]:
    """Seconds of plain sbatch, of the local executor, of our profile with short rules on this host
    and with all sent to Slurm, and until Slurm had done the last of these."""
    folder.mkdir()
    plain_s = _plain(folder / "plain")
    local_s, _ = _snakemake(folder / "local", "local", here=True)
    here_s, _ = _snakemake(folder / "here", "slurm", here=True)
    sent_s, done_s = _snakemake(folder / "sent", "slurm", here=False)
    return plain_s, local_s, here_s, sent_s, done_s


def _plain(folder: Path) -> float:
    """Seconds of the same jobs by plain sbatch, until the last one has made its file."""
    (folder / "out").mkdir(parents=True)
    start_s = time.perf_counter()
    for number in range(JOBS):
        job = ["sbatch", "--partition", PARTITION, "--time=5", "--mem=100", "--output=/dev/null"]
        run([*job, f"--wrap=touch out/{number}"], folder)
    while len(list((folder / "out").iterdir())) < JOBS:
        if time.perf_counter() - start_s > LONGEST_S:
            raise RuntimeError(f"Slurm did not run {JOBS} jobs in {LONGEST_S:.0f} s")
        time.sleep(0.05)
    return time.perf_counter() - start_s


def _snakemake(folder: Path, profile: str, *, here: bool) -> tuple[float, float]:
    """Seconds of a workflow of short jobs with a profile's settings, and until its last file."""
    folder.mkdir()
    (folder / "Snakefile").write_text(SNAKEFILE)
    settings = yaml.safe_load((ROOT / f"profiles/{profile}/config.yaml").read_text())
    settings = {key: value for key, value in settings.items() if key not in ONE_PROJECT_ONLY}
    settings |= {"config": {"here": here}}
    if profile == "slurm":
        job = {"slurm_partition": PARTITION, "mem_mb": 500, "runtime": 5}
        settings |= {"default-resources": job}
    (folder / "profile").mkdir()
    (folder / "profile/config.yaml").write_text(yaml.safe_dump(settings))
    start = time.time()
    command = [sys.executable, "-m", "snakemake", "--profile", "profile", "--quiet", "all"]
    usage = run(command, folder, {"HOME": str(folder)})
    last = max(file.stat().st_mtime for file in (folder / "out").iterdir())
    return usage.wall_s, last - start


@contextmanager
def _cluster(folder: Path) -> Iterator[None]:
    """The tests' cluster; a cluster that already runs is left running."""
    found = Cluster.running()
    cluster = found or Cluster(folder)
    cluster.start()
    try:
        yield
    finally:
        if not found:
            cluster.stop()


def _note(ours: tuple[float, ...], others: tuple[float, ...]) -> str:
    return f"{statistics.median(ours):.1f} s, {statistics.median(others):.1f} s"
