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

RESULTS_GIB, FETCHED_GIB = 0.2, 5.0
"""Least disk space for a call's logs and results, and for the published weights (866.6 M parameters
in fp32: 3.2 GiB) with the pictures, raw and prepared."""
TINY_PX, IMAGE_PX = 128, 224
"""Smallest side of a picture, of the models' size `tiny` and of all others."""
SHARED = Path("/dev/shm")


def findings(project: Project, specs: Sequence[RunSpec], *, here: bool) -> Iterator[Finding]:
    """About this host; its memory and cores only if the runs are `here`."""
    yield Finding(FINE, "Python", f"{platform.python_version()}, for Snakemake and reports")
    yield _disk(project, specs)
    if job := os.environ.get(slurm.JOB_ID):
        yield Finding(FINE, "Slurm", f"this is job {job}, on {platform.node()}")
    if here and specs:
        yield _shared_memory(specs)
        yield _cores(specs)
        yield _numa(specs)


def _disk(project: Project, specs: Sequence[RunSpec]) -> Finding:
    """Whether data, weights and results fit into the project's folder."""
    config, free_gib = project.config, shutil.disk_usage(".").free / GIB
    from_hub = isinstance(config.datasets[config.dataset], Hub)
    wanted = [Path(paths.MANIFEST.format(dataset=config.dataset))] if from_hub else []
    for model in {spec.settings.model for spec in specs}:
        if model.checkpoint and not Path(model.checkpoint).exists():
            key = paths.checkpoint_key(model.checkpoint, model.revision)
            wanted.append(Path(paths.CHECKPOINT.format(checkpoint=key)))
    needed_gib = RESULTS_GIB + FETCHED_GIB * any(not path.exists() for path in wanted)
    text = f"{free_gib:.1f} GiB are free in this folder, which needs at least {needed_gib:.1f}"
    if free_gib < needed_gib:
        return Finding(FAILS, "disk", text, "free some space, or clone the project elsewhere")
    return Finding(FINE, "disk", text)


def _shared_memory(specs: Sequence[RunSpec]) -> Finding:
    """Whether /dev/shm holds the batches that workers have ready."""
    needed_gib = max(map(_shared_gib, specs))
    try:
        free_gib = shutil.disk_usage(SHARED).free / GIB
    except OSError:
        return Finding(UNKNOWN, "shared memory", f"there is no {SHARED}", "mount a tmpfs there")
    text = f"{free_gib:.2f} GiB are free in {SHARED}; the workers' batches need {needed_gib:.2f}"
    if free_gib < needed_gib:
        remedy = "start the container with --shm-size=16g (or --ipc=host), or enlarge the tmpfs"
        return Finding(FAILS, "shared memory", text, remedy)
    return Finding(FINE, "shared memory", text)


def _shared_gib(spec: RunSpec) -> float:
    """Shared memory that a run's ready batches take at least on one host, GiB."""
    loader, model = spec.settings.loader, spec.settings.model
    if loader.decode == "device":
        return 0.0
    transfer = loader.transfer or ("float32" if loader.decode == "reference" else "uint8")
    side_px = model.image_px or (TINY_PX if model.size == "tiny" else IMAGE_PX)
    picture = 3 * side_px**2 * (4 if transfer == "float32" else 1)
    ready = loader.workers * loader.prefetch_factor * spec.settings.train.batch_size
    return spec.count // spec.nodes * ready * picture / GIB


def _cores(specs: Sequence[RunSpec]) -> Finding:
    """Whether each rank has a core, and on accelerators each worker process too."""
    ranks = ((spec, spec.count // spec.nodes) for spec in specs)
    needed = max(
        number * (1 + (spec.kind != "cpu" and loader.decode != "device") * loader.workers)
        for spec, number in ranks
        for loader in [spec.settings.loader]
    )
    granted = cores_granted()
    text = f"{granted} cores for {needed} ranks and workers; {memory_gib():.0f} GiB of memory"
    if granted < needed:
        return Finding(SLOW, "cores", text, "ask for more cores (Slurm: cpus_per_task)")
    return Finding(FINE, "cores", text)


def _numa(specs: Sequence[RunSpec]) -> Finding:
    """Whether the NUMA node of each accelerator is known, so that ranks stay near it."""
    nodes = len(list((host.SYS / "devices/system/node").glob("node[0-9]*")))
    for kind, ranks in {spec.kind: spec.count // spec.nodes for spec in specs}.items():
        known = [n for n in adapter_class(kind).numa_nodes(os.environ) if n is not None]
        if nodes > 1 and kind != "cpu" and len(known) < ranks:
            text = f"{nodes} nodes, but that of {ranks - len(known)} accelerators is unknown"
            use = "in a virtual machine, ask for the host's topology; in a container, mount /sys"
            return Finding(SLOW, "NUMA", text, use)
    return Finding(FINE, "NUMA", f"nodes: {max(nodes, 1)}")
