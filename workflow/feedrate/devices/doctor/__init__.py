"""The state of this machine, and what the runs of a plan would lack on it, before anything is
fetched.

One file per device kind has that kind's checks: a function `findings`, and the literals QUESTIONS
({name: Python expression}, for the interpreter of the kind's jobs, where `module` imports a module,
`version` gives that of an installed package and `output` runs a program) and INSTALL (how to add
packages). No measured program imports this package: an edit here repeats no run.
"""

import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from feedrate.config.devices import Device, is_called
from feedrate.config.project import Project
from feedrate.config.spec import KINDS, RunSpec
from feedrate.config.workflow import Hub
from feedrate.core import paths, plugins, processes, slurm
from feedrate.devices import host, launch, vendor
from feedrate.devices.base import DeviceError, adapter_class

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
QUESTIONS = {
    "python": "list(sys.version_info[:3])",
    "missing": f"[name for name in {MODULES} if importlib.util.find_spec(name) is None]",
    "torch": "version('torch')",
}
RESULTS_GIB, FETCHED_GIB = 0.2, 5.0
"""Least disk space for a call's logs and results, and for the published weights (866.6 M parameters
in fp32: 3.2 GiB) with the pictures, raw and prepared."""
TINY_PX, IMAGE_PX = 128, 224
"""Smallest side of a picture, of the models' size `tiny` and of all others."""
SHARED = Path("/dev/shm")
_ASK = """
import importlib, importlib.metadata, importlib.util, json, os, subprocess, sys
module, version = importlib.import_module, importlib.metadata.version
def output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
answers = {}
for name, question in json.loads(sys.argv[1]).items():
    try:
        answers[name] = eval(question)
    except BaseException as error:
        answers[name] = {"error": f"{type(error).__name__}: {error}"}
print("\\n" + json.dumps(answers))
"""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, such as `Python` or `h100: torchao`."""

    outlook: Outlook
    subject: str
    text: str
    """One sentence without a full stop."""
    remedy: str = ""
    """Empty if it is fine."""
    studies: list[str] = []
    """The studies that it concerns; empty: all."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}: {self.remedy}"


class Asked(NamedTuple):
    """The input of a kind's checks: runs on one device of this host."""

    specs: Sequence[RunSpec]
    python: str
    """The interpreter of the jobs."""
    answers: Mapping[str, Any]
    """Its answers by question; {"error": reason} for a question without one."""

    def error(self, question: str) -> str:
        """Why a question has no answer; empty if it has one."""
        answer = self.answers[question]
        return str(answer["error"]) if isinstance(answer, dict) and "error" in answer else ""

    def studies(self, wanted: Mapping[str, Collection[Any]]) -> list[str]:
        """The studies with a run in which one of these settings has one of these values."""
        of = [(attrgetter(f"settings.{setting}"), known) for setting, known in wanted.items()]
        return sorted({s.study for s in self.specs for value, known in of if value(s) in known})

    def package(
        self, subject: str, questions: Sequence[str], use: str, studies: Sequence[str] = ()
    ) -> Finding:
        """Whether the software that these studies need answers all questions; the first question
        asks for its version."""
        if error := next(filter(None, map(self.error, questions)), ""):
            return Finding(FAILS, subject, f"it is missing or fails ({error})", use, [*studies])
        return Finding(FINE, subject, str(self.answers[questions[0]]), studies=[*studies])


def examine(project: Project, specs: Iterable[RunSpec], *, here: bool = True) -> list[Finding]:
    """The findings for these runs: fine, will fail, will be slow, or unknown. `here`: they run on
    this host, whose devices and software are looked at. No network is used."""
    runs = sorted(specs, key=attrgetter("device"))
    version = f"{platform.python_version()}, for Snakemake and reports"
    found = [Finding(FINE, "Python", version), _disk(project, runs)]
    if job := os.environ.get(slurm.JOB_ID):
        found.append(Finding(FINE, "Slurm", f"this is job {job}, on {platform.node()}"))
    if here and runs:
        found += [_shared_memory(runs), _cores(runs), _numa(runs)]
    for device, group in groupby(runs, key=attrgetter("device")):
        use = f"run there: srun … python -m feedrate doctor --device {device}"
        own = [Finding(UNKNOWN, "node", "its nodes cannot be seen from here", use)]
        if here:
            own = list(_of_device(project.devices[device], list(group)))
        found += [msgspec.structs.replace(f, subject=f"{device}: {f.subject}") for f in own]
    return found


def _judged(
    fine: bool, subject: str, text: str, remedy: str, otherwise: Outlook = FAILS
) -> Finding:
    return Finding(FINE, subject, text) if fine else Finding(otherwise, subject, text, remedy)


def _disk(project: Project, specs: Sequence[RunSpec]) -> Finding:
    """Whether data, weights and results fit into the project's folder."""
    config, free_gib = project.config, shutil.disk_usage(".").free / host.GIB
    from_hub = isinstance(config.datasets[config.dataset], Hub)
    wanted = [Path(paths.MANIFEST.format(dataset=config.dataset))] if from_hub else []
    for model in {spec.settings.model for spec in specs}:
        if model.checkpoint and not Path(model.checkpoint).exists():
            key = paths.checkpoint_key(model.checkpoint, model.revision)
            wanted.append(Path(paths.CHECKPOINT.format(checkpoint=key)))
    needed_gib = RESULTS_GIB + FETCHED_GIB * any(not path.exists() for path in wanted)
    text = f"{free_gib:.1f} GiB are free in this folder, which needs at least {needed_gib:.1f}"
    use = "free some space, or clone the project elsewhere"
    return _judged(free_gib >= needed_gib, "disk", text, use)


def _shared_memory(specs: Sequence[RunSpec]) -> Finding:
    """Whether /dev/shm holds the batches that workers have ready on one host."""
    needed_gib = 0.0
    for spec in specs:
        loader, model = spec.settings.loader, spec.settings.model
        transfer = loader.transfer or ("float32" if loader.decode == "reference" else "uint8")
        side_px = model.image_px or (TINY_PX if model.size == "tiny" else IMAGE_PX)
        picture = 3 * side_px**2 * (4 if transfer == "float32" else 1)
        ready = loader.workers * loader.prefetch_factor * spec.settings.train.batch_size
        if loader.decode != "device":
            gib = spec.count // spec.nodes * ready * picture / host.GIB
            needed_gib = max(needed_gib, gib)
    try:
        free_gib = shutil.disk_usage(SHARED).free / host.GIB
    except OSError:
        return Finding(UNKNOWN, "shared memory", f"there is no {SHARED}", "mount a tmpfs there")
    text = f"{free_gib:.2f} GiB are free in {SHARED}; the workers' batches need {needed_gib:.2f}"
    use = "start the container with --shm-size=16g (or --ipc=host), or enlarge the tmpfs"
    return _judged(free_gib >= needed_gib, "shared memory", text, use)


def _cores(specs: Sequence[RunSpec]) -> Finding:
    """Whether each rank has a core, and on accelerators each worker process too."""
    needed, granted = 0, host.cores_granted()
    for spec in specs:
        loader = spec.settings.loader
        workers = loader.workers if spec.kind != "cpu" and loader.decode != "device" else 0
        needed = max(needed, spec.count // spec.nodes * (1 + workers))
    text = f"{granted} cores for {needed} ranks and workers; {host.memory_gib():.0f} GiB of memory"
    use = "ask for more cores (Slurm: cpus_per_task)"
    return _judged(granted >= needed, "cores", text, use, SLOW)


def _numa(specs: Sequence[RunSpec]) -> Finding:
    """Whether the NUMA node of each accelerator is known, so that ranks stay near it."""
    nodes = len(list((host.SYS / "devices/system/node").glob("node[0-9]*")))
    for kind, ranks in {spec.kind: spec.count // spec.nodes for spec in specs}.items():
        known = [n for n in adapter_class(kind).numa_nodes(os.environ) if n is not None]
        if nodes > 1 and kind != "cpu" and len(known) < ranks:
            text = f"{nodes} nodes; the node of {ranks - len(known)} accelerators is unknown"
            use = "in a virtual machine, ask for the host's topology; in a container, mount /sys"
            return Finding(SLOW, "NUMA", text, use)
    return Finding(FINE, "NUMA", f"nodes: {max(nodes, 1)}")


def _of_device(device: Device, specs: list[RunSpec]) -> Iterator[Finding]:
    """The findings about one device and the software of its jobs."""
    spec = specs[0]
    if spec.kind in plugins.declared(KINDS, "NOUNS"):
        yield (cards := _cards(device, spec))
        if cards.outlook == FAILS:
            return
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
    questions = plugins.declared(__name__, "QUESTIONS").get(spec.kind, {})
    python = launch.interpreter(spec.software)
    asked = Asked(specs, python, ask(spec, {**QUESTIONS, **questions}, environment))
    yield from _software(asked)
    yield from _bf16(asked)
    if questions and asked.answers:
        yield from plugins.load(__name__, spec.kind).findings(asked)


def _cards(device: Device, spec: RunSpec) -> Finding:
    """Whether the host has the model and number of accelerators that a job needs."""
    (_, many), needed = plugins.declared(KINDS, "NOUNS")[spec.kind], spec.count // spec.nodes
    machine = host.look()
    models = machine.models if machine.kind == spec.kind else []
    found = ", ".join(f"{number} x {model}" for model, number in Counter(models).items())
    right = [m for m in models if not device.model_pattern or is_called(m, device.model_pattern)]
    if len(right) >= needed:
        return Finding(FINE, many, found)
    text = f"a job needs {needed} x {device.label}; this machine has {found or 'none'}"
    use = "use --device detected for this machine's devices, or run it where the device is"
    return Finding(FAILS, many, "; ".join(filter(None, [text, machine.remark])), use)


def ask(spec: RunSpec, questions: Mapping[str, str], environment: Mapping[str, str]) -> Any:
    """The interpreter's answers, inside the device's modules and container; empty if it gives none
    in time, or if its image would have to be fetched."""
    if "://" in (spec.software.container or ""):
        return {}
    command = [launch.interpreter(spec.software), "-c", _ASK, json.dumps(questions)]
    try:
        wrapped = launch.wrap(spec, command)
        answer = processes.ask(wrapped, ANSWER_S, environment, dies_with_us=True)
        return json.loads(answer.stdout.strip().rpartition("\n")[2])
    except (*processes.NO_ANSWER, ValueError):
        return {}


def _bf16(asked: Asked) -> Iterator[Finding]:
    """Runs in bf16 on an x86 processor without AVX-512: torch's fast library for products of
    matrices needs it for bf16 (aten/src/ATen/native/mkldnn/Utils.h)."""
    studies = asked.studies({"train.precision": ("bf16", "bf16_full")})
    flags = host.processor_flags()
    if studies and asked.specs[0].kind == "cpu" and flags and "avx512bw" not in flags:
        text = "without AVX-512, products of matrices in bf16 take many times as long as in fp32"
        yield Finding(SLOW, "bf16", text, "expect long runs, or exclude the level", studies)


def _software(asked: Asked) -> Iterator[Finding]:
    """Python and the packages that all kinds need."""
    if not asked.answers:
        text = f"{asked.python} did not answer within {ANSWER_S} s, or its image is not here yet"
        use = "start it by hand, with the same modules and container"
        yield Finding(UNKNOWN, "Python", text, use)
        return
    text = f"{'.'.join(map(str, asked.answers['python']))} ({asked.python})"
    if tuple(asked.answers["python"]) < vendor.OLDEST:
        use = "use an image or environment with 3.11 or 3.12 (docs/first-hour.md names some)"
        yield Finding(FAILS, "Python", f"{text} is too old for the jobs", use)
    else:
        yield Finding(FINE, "Python", text)
    if missing := asked.answers["missing"]:
        install = plugins.declared(__name__, "INSTALL")
        use = install.get(asked.specs[0].kind, "run `make setup` again")
        text = f"{asked.python} lacks {', '.join(missing)}"
        yield Finding(FAILS, "packages", text, use.replace("PYTHON", asked.python))
    elif not asked.error("torch"):
        yield Finding(FINE, "torch", str(asked.answers["torch"]))
