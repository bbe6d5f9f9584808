"""The host: Python, disk space, shared memory, cores and NUMA nodes, and the Slurm job around."""

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from feedrate.config.project import Project
from feedrate.config.spec import RunSpec
from feedrate.config.workflow import Hub
from feedrate.core import paths, slurm
from feedrate.devices import host
from feedrate.devices.base import adapter_class
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Finding
from feedrate.devices.host import GIB, cores_granted, memory_gib

RESULTS_GIB = 1.0
"""Disk space for the logs and results of a call; a run writes about a megabyte."""
FETCHED_GIB = 10.0
"""Disk space for the published data (raw, prepared and decoded: 2.5 GB for 9,792 pictures of 294
pixels) and weights (866.6 M parameters in fp32: 3.5 GB)."""
TINY_PX, IMAGE_PX = 128, 224
"""Smallest side of a picture, of the models' size `tiny` and of all others."""
SHARED = Path("/dev/shm")  # the kernel's folder for shared memory


def findings(project: Project, specs: Sequence[RunSpec], *, here: bool) -> Iterator[Finding]:
    """About this host; its memory and cores only if the runs are `here`."""
    yield Finding(FINE, "Python", f"{platform.python_version()}, for Snakemake and reports")
    yield _disk(project, specs)
    if job := os.environ.get(slurm.JOB_ID):
        yield Finding(FINE, "Slurm", f"this is job {job}, on {platform.node()}")
    if here and specs:
        yield _shared_memory(specs)
        yield _cores(specs)
        yield from _numa(specs)


def _disk(project: Project, specs: Sequence[RunSpec]) -> Finding:
    """Whether data, weights and results fit into the project's folder."""
    free_gib = shutil.disk_usage(".").free / GIB
    config = project.config
    manifest = Path(paths.MANIFEST.format(dataset=config.dataset))
    fetches = isinstance(config.datasets[config.dataset], Hub) and not manifest.exists()
    fetches |= any(_fetches_weights(spec) for spec in specs)
    needed_gib = RESULTS_GIB + FETCHED_GIB * fetches
    what = "data, weights and results" if fetches else "results"
    text = f"{free_gib:.1f} GiB are free here; {what} need about {needed_gib:.0f} GiB"
    if free_gib < needed_gib:
        return Finding(FAILS, "disk", text, "free some space, or clone the project elsewhere")
    return Finding(FINE, "disk", text)


def _fetches_weights(spec: RunSpec) -> bool:
    model = spec.settings.model
    if model.checkpoint is None or Path(model.checkpoint).exists():
        return False
    key = paths.checkpoint_key(model.checkpoint, model.revision)
    return not Path(paths.CHECKPOINT.format(checkpoint=key)).exists()


def _shared_memory(specs: Sequence[RunSpec]) -> Finding:
    """Whether /dev/shm holds the batches that workers have ready."""
    needed_gib = max(map(_shared_gib, specs))
    try:
        free_gib = shutil.disk_usage(SHARED).free / GIB
    except OSError:
        return Finding(UNKNOWN, "shared memory", f"there is no {SHARED}", "mount a tmpfs there")
    text = f"{free_gib:.1f} GiB are free in {SHARED}; the workers' batches need {needed_gib:.1f}"
    if free_gib < needed_gib:
        remedy = "start the container with --shm-size=16g (or --ipc=host), or enlarge the tmpfs"
        return Finding(FAILS, "shared memory", text, remedy)
    return Finding(FINE, "shared memory", text)


def _shared_gib(spec: RunSpec) -> float:
    """Shared memory that a run's ready batches take at least on one host, GiB."""
    loader = spec.settings.loader
    if loader.decode == "device" or not loader.workers:
        return 0.0
    transfer = loader.transfer or ("float32" if loader.decode == "reference" else "uint8")
    model = spec.settings.model
    side_px = model.image_px or (TINY_PX if model.size == "tiny" else IMAGE_PX)
    bytes_ = 3 * side_px**2 * (4 if transfer == "float32" else 1)
    batch = spec.settings.train.batch_size * bytes_
    ready = loader.workers * loader.prefetch_factor
    return spec.count // spec.nodes * ready * batch / GIB


def _cores(specs: Sequence[RunSpec]) -> Finding:
    """Whether each rank and each worker process has a core."""

    def processes(spec: RunSpec) -> int:
        loader = spec.settings.loader
        workers = 0 if loader.decode == "device" or spec.kind == "cpu" else loader.workers
        return spec.count // spec.nodes * (1 + workers)

    granted, needed = cores_granted(), max(map(processes, specs))
    text = f"{granted} cores, {memory_gib():.0f} GiB of memory; ranks and workers are {needed}"
    if granted < needed:
        return Finding(SLOW, "cores", text, "ask for more cores (Slurm: cpus_per_task)")
    return Finding(FINE, "cores", text)


def _numa(specs: Sequence[RunSpec]) -> Iterator[Finding]:
    """Whether the NUMA node of each accelerator is known, so that ranks stay near it."""
    nodes = len(list((host.SYS / "devices/system/node").glob("node[0-9]*")))
    kinds = {spec.kind: spec.count // spec.nodes for spec in specs if spec.kind != "cpu"}
    for kind, ranks in kinds.items():
        known = [n for n in adapter_class(kind).numa_nodes(os.environ) if n is not None]
        if nodes > 1 and len(known) < ranks:
            text = f"{nodes} NUMA nodes, but the node of {ranks - len(known)} devices is unknown"
            use = "in a virtual machine, ask for the host's topology; in a container, mount /sys"
            yield Finding(SLOW, "NUMA", text, use)
            return
    yield Finding(FINE, "NUMA", f"nodes: {max(nodes, 1)}")
