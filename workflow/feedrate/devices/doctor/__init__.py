"""The state of this machine, and what the runs of a plan would lack on it, before anything is
fetched.

One file per device kind has that kind's checks: SCRIPT, whose functions with `@answer` run in the
interpreter of the kind's jobs; INSTALL, which says how to add packages; both are literals; and
`findings`. In the remedies, PYTHON stands for that interpreter. No measured program imports this
package: an edit here repeats no run.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.config.devices import Device, is_called
from feedrate.config.project import Project
from feedrate.config.spec import KINDS, RunSpec
from feedrate.config.workflow import Hub
from feedrate.core import paths, plugins, processes, slurm
from feedrate.devices import host, launch, vendor
from feedrate.devices.base import DeviceError

Outlook = Literal["fine", "will fail", "will be slow", "unknown"]
FINE: Outlook = "fine"
FAILS: Outlook = "will fail"
SLOW: Outlook = "will be slow"
UNKNOWN: Outlook = "unknown"

ANSWER_S = 15
"""Time limit of the questions to an interpreter, s. torch, from a cold disk, takes most of it."""
MODULES = (
    *("msgspec", "numpy", "psutil", "PIL", "pyarrow", "safetensors", "simplejpeg", "tensorboard"),
    *("tokenizers", "torch", "transformers", "accelerate"),
)
"""The modules that the measured programs import on every kind of device."""
RESULTS_GIB, FETCHED_GIB = 0.2, 5.0
"""Least disk space for a call's logs and results, and for the published weights (866.6 M parameters
in fp32: 3.2 GiB) with the pictures, raw and prepared."""
TINY_PX, IMAGE_PX = 128, 224
"""Smallest side of a picture, of the models' size `tiny` and of all others."""
SHARED = Path("/dev/shm")
_BEGIN = """
import importlib.util, json, os, subprocess, sys
from importlib.metadata import version
answers, errors = {}, {}
def answer(question):
    try:
        answers[question.__name__] = question()
    except BaseException as error:
        errors[question.__name__] = f"{type(error).__name__}: {error}"
answers["python"] = sys.version_info[:3]
answers["missing"] = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
@answer
def torch():
    return version("torch")
"""
_END = """
print("\\n" + json.dumps([answers, errors]))
"""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, such as `disk` or `h100: torchao`."""

    outlook: Outlook
    subject: str
    text: str
    """One sentence without a full stop."""
    remedy: str = ""
    """What to do; shown unless it is fine."""
    studies: list[str] = []
    """The studies that it concerns; empty: all."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}: {self.remedy}"


def examine(project: Project, specs: Iterable[RunSpec], *, here: bool = True) -> list[Finding]:
    """The findings for these runs. `here`: they run on this host, whose devices and software are
    looked at. No network is used."""
    runs = sorted(specs, key=attrgetter("device"))
    findings = [_disk(project, runs)]
    if here and runs:
        findings += _host(runs)
    for device, group in groupby(runs, key=attrgetter("device")):
        use = f"run there: srun … python -m feedrate doctor --device {device}"
        own = [Finding(UNKNOWN, "node", "its nodes cannot be seen from here", use)]
        if here:
            own = list(_of_device(project.devices[device], list(group)))
        findings += [msgspec.structs.replace(f, subject=f"{device}: {f.subject}") for f in own]
    return findings


def studies_with(specs: Sequence[RunSpec], wanted: Mapping[str, Collection[Any]]) -> list[str]:
    """The studies with a run in which one of these settings has one of these values."""
    values = [(attrgetter(f"settings.{setting}"), known) for setting, known in wanted.items()]
    return sorted({s.study for s in specs for value, known in values if value(s) in known})


def package(
    name: str, answers: Mapping[str, Any], errors: Mapping[str, str], use: str, *studies: str
) -> Finding:
    """Whether software that these studies need works; the answer is its version."""
    text = f"it is missing or fails ({errors[name]})" if name in errors else str(answers[name])
    return Finding(FAILS if name in errors else FINE, name, text, use, [*studies])


def _disk(project: Project, specs: Sequence[RunSpec]) -> Finding:
    """Whether data, weights and results fit into the project's folder."""
    config, free_gib = project.config, shutil.disk_usage(".").free / host.GIB
    from_hub = isinstance(config.datasets[config.dataset], Hub)
    wanted = [Path(paths.MANIFEST.format(dataset=config.dataset))] if from_hub else []
    for model in {spec.settings.model for spec in specs}:
        if model.checkpoint and not Path(model.checkpoint).exists():
            key = paths.checkpoint_key(model.checkpoint, model.revision)
            wanted.append(Path(paths.CHECKPOINT.format(checkpoint=key)))
    needed_gib = RESULTS_GIB if all(map(Path.exists, wanted)) else RESULTS_GIB + FETCHED_GIB
    text = f"{free_gib:.1f} GiB are free in this folder, which needs at least {needed_gib:.1f}"
    use = "free some space, or clone the project elsewhere"
    return Finding(FAILS if free_gib < needed_gib else FINE, "disk", text, use)


def _host(specs: Sequence[RunSpec]) -> Iterator[Finding]:
    """Whether /dev/shm holds the batches that workers have ready, and each rank has a core, on
    accelerators each worker too."""
    batches_gib, processes_needed = 0.0, 0
    for spec in specs:
        ranks, loader, model = spec.count // spec.nodes, spec.settings.loader, spec.settings.model
        workers = 0 if loader.decode == "device" else loader.workers
        transfer = loader.transfer or ("float32" if loader.decode == "reference" else "uint8")
        side_px = model.image_px or (TINY_PX if model.size == "tiny" else IMAGE_PX)
        picture = 3 * side_px**2 * (4 if transfer == "float32" else 1)
        ready = workers * loader.prefetch_factor * spec.settings.train.batch_size
        batches_gib = max(batches_gib, ranks * ready * picture / host.GIB)
        per_rank = 1 if spec.kind == "cpu" else 1 + workers
        processes_needed = max(processes_needed, ranks * per_rank)
    free_gib = shutil.disk_usage(SHARED).free / host.GIB if SHARED.is_dir() else 0.0
    text = f"{free_gib:.2f} GiB are free in {SHARED}; the workers' batches need {batches_gib:.2f}"
    use = "start the container with --shm-size=16g (or --ipc=host), or enlarge the tmpfs"
    yield Finding(FAILS if free_gib < batches_gib else FINE, "shared memory", text, use)
    cores, memory_gib = host.cores_granted(), host.memory_gib()
    text = f"{cores} cores for {processes_needed} ranks and workers; {memory_gib:.0f} GiB of memory"
    use = "ask for more cores (Slurm: cpus_per_task)"
    yield Finding(SLOW if cores < processes_needed else FINE, "cores", text, use)


def _of_device(device: Device, specs: list[RunSpec]) -> Iterator[Finding]:
    """The findings about one device and the software of its jobs."""
    spec, kind = specs[0], specs[0].kind
    if kind in plugins.declared(KINDS, "NOUNS"):
        yield (cards := _cards(device, spec))
        if cards.outlook == FAILS:
            return
    flags = host.processor_flags()
    slow = studies_with(specs, {"train.precision": ("bf16", "bf16_full")})
    if kind == "cpu" and slow and flags and "avx512bw" not in flags:
        # torch's fast library for products of matrices needs it (native/mkldnn/Utils.h).
        text = "without AVX-512, products of matrices in bf16 take many times as long as in fp32"
        yield Finding(SLOW, "bf16", text, "expect long runs, or exclude the level", slow)
    try:
        if spec.nodes > 1 and slurm.JOB_ID not in os.environ:
            raise DeviceError(f"a job on {spec.nodes} nodes must run inside a Slurm job")
        spec = vendor.with_interpreter(spec, os.environ)
        environment = launch.launch_environment(spec, os.environ)
        for launcher in {each.launcher for each in specs}:
            launch.check_programs(msgspec.structs.replace(spec, launcher=launcher), environment)
    except DeviceError as error:
        yield Finding(FAILS, "software", str(error), "docs/first-hour.md shows a working set-up")
        return
    python = launch.interpreter(spec.software)
    script = _BEGIN + plugins.declared(__name__, "SCRIPT").get(kind, "") + _END
    command = launch.wrap(spec, [python, "-c", script, *MODULES])
    try:
        if "://" in (spec.software.container or ""):
            raise ValueError("its image would be fetched")
        printed = processes.ask(command, ANSWER_S, environment, dies_with_us=True).stdout
        answers, errors = json.loads(printed.strip().rpartition("\n")[2])
    except (*processes.NO_ANSWER, ValueError):
        text = f"{python} did not answer within {ANSWER_S} s, or its image is not here yet"
        use = "start it by hand, with the same modules and container"
        yield Finding(UNKNOWN, "Python", text, use)
        return
    text = f"{'.'.join(map(str, answers['python']))} ({python})"
    use = "use an image or environment with 3.11 or 3.12 (docs/first-hour.md names some)"
    is_old = tuple(answers["python"]) < vendor.OLDEST
    yield Finding(FAILS if is_old else FINE, "Python", text, use)
    own = []
    if answers["missing"]:
        use = plugins.declared(__name__, "INSTALL").get(kind, "run `make setup` again")
        own = [Finding(FAILS, "packages", f"PYTHON lacks {', '.join(answers['missing'])}", use)]
    elif "torch" in answers:
        own = [Finding(FINE, "torch", str(answers["torch"]))]
    if kind in plugins.declared(__name__, "SCRIPT"):
        own += plugins.load(__name__, kind).findings(specs, answers, errors)
    for one in own:
        text, use = (part.replace("PYTHON", python) for part in (one.text, one.remedy))
        yield msgspec.structs.replace(one, text=text, remedy=use)


def _cards(device: Device, spec: RunSpec) -> Finding:
    """Whether the host has the model and number of accelerators that a job needs."""
    (_, many), needed = plugins.declared(KINDS, "NOUNS")[spec.kind], spec.count // spec.nodes
    machine = host.look()
    models = machine.models if machine.kind == spec.kind else []
    right = [m for m in models if not device.model_pattern or is_called(m, device.model_pattern)]
    text = ", ".join(f"{number} x {model}" for model, number in Counter(models).items())
    if len(right) < needed:
        text = f"a job needs {needed} x {device.label}; this machine has {text or 'none'}"
        text += f"; {machine.remark}" if machine.remark else ""
    use = "use --device detected for this machine's devices, or run it where the device is"
    return Finding(FINE if len(right) >= needed else FAILS, many, text, use)
