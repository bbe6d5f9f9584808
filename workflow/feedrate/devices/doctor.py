"""The state of this machine, and what the runs of a plan would lack on it, before anything is
fetched. No measured program imports this: an edit here repeats no run."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from feedrate.config.devices import Device, is_called
from feedrate.config.project import Project
from feedrate.config.spec import KINDS, RunSpec
from feedrate.config.values import size_text
from feedrate.config.workflow import Hub
from feedrate.core import paths, plugins, processes, scheduler
from feedrate.core.errors import ExpectedError
from feedrate.core.files import CACHES, check_project
from feedrate.core.processes import command_text
from feedrate.devices import host, launch, load
from feedrate.devices.base import DeviceError

Outlook = Literal["fine", "will fail", "will be slow", "unknown"]
FINE: Outlook = "fine"
FAILS: Outlook = "will fail"
SLOW: Outlook = "will be slow"
UNKNOWN: Outlook = "unknown"

ANSWER_S = 90  # for all questions to an interpreter: torch takes most of it, where its disk is cold
RESULTS_GIB, FETCHED_GIB = 0.2, 5.0
"""Least disk space for a call's logs and results, and for the published weights (866.6 M parameters
in fp32: 3.2 GiB) with the pictures, raw and prepared."""
TINY_PX, IMAGE_PX = 128, 224
"""Smallest side of a picture, of the models' size `tiny` and of all others."""
SHARED = Path("/dev/shm")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, such as `disk` or `h100: torchao`."""

    outlook: Outlook
    subject: str
    text: str  # one sentence without a full stop
    remedy: str = ""  # what to do; shown unless it is fine
    studies: list[str] = []  # the studies that it concerns; empty: all

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}: {self.remedy}"


class Check(NamedTuple):
    """Code for the interpreter of the jobs, which may be in a container. It fails if something is
    wrong, and may leave a `fact` to show. PYTHON stands for that interpreter."""

    subject: str
    code: str
    remedy: str
    outlook: Outlook = FAILS  # what follows if the code fails
    needs: Mapping[str, Sequence[str]] = {}
    """The settings with those values that need it; empty: all runs need it."""


SETUP = "run `make setup` again; where GPUs are elsewhere: `make setup GPU_DRIVER=<version>`"
LEAVE_OUT = ", or remove what needs it from the device's capabilities in config/devices.yaml"
PINNED = "install the releases of requirements/run.lock (`make setup` does)"
TORCH = "remove .venv and run `make setup`, which chooses the torch for this driver and GPU"
GAUDI = "add only what is missing: `PYTHON requirements/gaudi.py`"
DECODES = {"loader.decode": ["device"]}
LOW_BITS = ["adamw_torch_4bit", "adamw_torch_8bit"]
"""Optimizers of torchao, whose steps it compiles."""
FP8 = {"train.precision": ["fp8"], "train.optimizer": LOW_BITS}
OPTIMUM = {"hpu.trainer": ["optimum-habana"]}
COMPILED = {"train.execution": ["compiled", "cuda_graphs"], "train.optimizer": LOW_BITS}
OLD = """
fact = f"{sys.version.split()[0]} (PYTHON)"
assert sys.version_info >= (3, 11), fact
"""
PACKAGES = """
names = "msgspec numpy psutil PIL pyarrow safetensors simplejpeg tensorboard tokenizers torch"
missing = [n for n in f"{names} transformers accelerate".split() if find_spec(n) is None]
assert not missing, f"PYTHON lacks {', '.join(missing)}"
fact = f"torch {version('torch')}"
"""
TRIED = {
    "torch": ("2.11", "2.13"),
    "transformers": ("5.0", "5.24"),
    "accelerate": ("1.12", "1.15"),
}
TRIED_ON_GAUDI = {
    "optimum-habana": ("1.21", "1.21"),
    "transformers": ("4.55", "4.55"),
    "accelerate": ("1.10", "1.10"),
}
"""The oldest and the newest release of each library that all models ran with: the table "Releases
that were tried" in docs/first-hour.md."""


def releases(tried: Mapping[str, tuple[str, str]], condition: str) -> str:
    """Code that fails unless all installed libraries meet a `condition`, such as `old <= has`."""
    return f"""
def numbers(text):
    return [int(number) for number in re.findall("[0-9]+", text)][:2]
for name, (oldest, newest) in {tried}.items():
    try:
        installed = version(name)
    except Exception:  # `packages` says so
        continue
    old, has, new = numbers(oldest), numbers(installed), numbers(newest)
    span = oldest if oldest == newest else f"{{oldest}} to {{newest}}"
    assert {condition}, f"{{name}} {{installed}} of PYTHON is not among {{span}}, which were tried"
"""


CUDA = """
import torch.version
assert torch.version.cuda, "this torch is a build for CPUs"
assert torch.cuda.is_available(), f"torch for CUDA {torch.version.cuda} finds no GPU"
"""
NVJPEG = """
import torch, torchvision.io as io
io.decode_jpeg(io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8)), device="cuda")
"""
CLOCKS = """
from feedrate.devices.kinds import cuda
for number, card in enumerate(cuda.DeviceAdapter.cards()):
    state = cuda.gpu_condition(card.uuid.removeprefix("GPU-"), 0)
    assert state, f"nvidia-ml-py cannot read energy and clocks of GPU {number}"
    reasons = ", ".join(state["slowed_by"] + state["limited_by"])
    assert not reasons, f"GPU {number}: {reasons}"
"""
OTHERS = """
command = "nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader"
printed = subprocess.run(command.split(), capture_output=True, text=True).stdout
rows = re.findall(r"^\\d+,.+", printed, re.M)
assert not rows, f"by process {rows[0]}"
"""
GAUDI_TORCH = """
import habana_frameworks.torch.hpu as hpu
assert hpu.is_available(), "it finds no device"
"""
KERNELS = """
absent = [path for path in os.environ["GC_KERNEL_PATH"].split(":") if not os.path.exists(path)]
assert not absent, f"{absent[0]} does not exist"
"""
CPU = [
    Check("Python", OLD, "use an image or environment with 3.11 or 3.12 (docs/gaudi.md)"),
    Check("packages", PACKAGES, SETUP),
    Check("releases", releases(TRIED, "old <= has"), PINNED),
    Check("newer releases", releases(TRIED, "has <= new"), f"if a run fails, {PINNED}", UNKNOWN),
]
CHECKS = {
    "cpu": CPU,
    "cuda": [
        *CPU,
        Check("CUDA", CUDA, TORCH + "; a container needs --nv or --gpus all"),
        Check("torchvision", NVJPEG, SETUP + LEAVE_OUT, needs=DECODES),
        Check("torchao", "version('torchao')", SETUP + LEAVE_OUT, needs=FP8),
        Check(
            "triton",  # its first use builds a part in C
            "import triton; triton.runtime.driver.active.get_current_target()",
            "install a C compiler and Python's headers (Ubuntu: gcc, python3-dev)" + LEAVE_OUT,
            needs=COMPILED,
        ),
        Check("clocks", CLOCKS, "look at nvidia-smi -q -d PERFORMANCE,POWER", SLOW),
        Check("GPUs in use", OTHERS, "wait for it, or set CUDA_VISIBLE_DEVICES", SLOW),
    ],
    "hpu": [
        CPU[0],
        Check("packages", PACKAGES, GAUDI),
        Check("releases", releases(TRIED_ON_GAUDI, "old <= has <= new"), GAUDI, needs=OPTIMUM),
        Check(
            "habana_frameworks",
            GAUDI_TORCH,
            "use Intel's container, or its torch and not a stock one (`habanalabs-installer.sh "
            "install --type pytorch`); see hl-smi and dmesg; a container needs --runtime=habana",
        ),
        Check("optimum", "version('optimum-habana')", GAUDI, needs=OPTIMUM),
        Check("pip", "import pip", "optimum-habana runs it: `PYTHON -m ensurepip`", needs=OPTIMUM),
        Check(
            "media",
            "import habana_frameworks.mediapipe",
            "install habana-media-loader for your version of the Gaudi software (Intel's licence)"
            + LEAVE_OUT,
            needs=DECODES,
        ),
        Check(
            "GC_KERNEL_PATH",  # without it no graph compiles
            KERNELS,
            "set it in the device's entry, `software: {environment: …}` (docs/gaudi.md)",
        ),
    ],
}
"""The checks of each kind of device."""
ASK = """
import json, os, re, subprocess, sys
from importlib.metadata import version
from importlib.util import find_spec
def answer(code):
    names = {**globals(), "fact": ""}
    try:
        exec(code, names)
        return [True, names["fact"]]
    except AssertionError as error:
        return [False, str(error)]
    except BaseException as error:
        return [False, f"{type(error).__name__}: {error}"]
print("\\n" + json.dumps([answer(code) for code in json.loads(sys.argv[1])]))
"""


def examine(project: Project, specs: Iterable[RunSpec], *, runs_here: bool = True) -> list[Finding]:
    """The findings for these runs. `runs_here`: they run on this host. No network is used."""
    runs = sorted(specs, key=attrgetter("device"))
    watch = load.Watch()
    findings = [_folders(), _disk(project, runs)]
    if runs_here and runs:
        findings += _host(runs)
    for device, group in groupby(runs, key=attrgetter("device")):
        remedy = f"run there: {scheduler.INSIDE} {command_text('doctor', '--device', device)}"
        own = [Finding(UNKNOWN, "node", "its nodes cannot be seen from here", remedy)]
        if runs_here:
            own = list(_of_device(project.devices[device], list(group)))
        findings += [msgspec.structs.replace(f, subject=f"{device}: {f.subject}") for f in own]
    if runs_here and runs:
        busy, remedy = watch.busy(), "stop them; rates that are measured meanwhile are provisional"
        text = busy or "no other program uses much of the cores"
        findings.append(Finding(SLOW if busy else FINE, "load", text, remedy))
    return findings


def _folders() -> Finding:
    """Whether the workflow can run in the project's folder, and where libraries keep caches."""
    try:
        check_project(Path())
    except ExpectedError as error:
        text, _, remedy = str(error).rpartition(": ")
        return Finding(FAILS, "folders", text, remedy)
    text = "the project and the home can be written"
    if os.environ.get("XDG_CACHE_HOME") == str(CACHES.resolve()):
        text = f"the home cannot be written: caches go to {CACHES}"
    return Finding(FINE, "folders", text)


def _disk(project: Project, specs: Sequence[RunSpec]) -> Finding:
    """Whether data, weights and results fit into the project's folder."""
    config, free = project.config, shutil.disk_usage(".").free
    downloads = []
    if isinstance(config.datasets[config.dataset], Hub):
        downloads.append(paths.MANIFEST.format(dataset=config.dataset, identity="*"))
    for model in {spec.settings.model for spec in specs}:
        if model.checkpoint and not Path(model.checkpoint).exists():
            key = paths.checkpoint_key(model.checkpoint, model.revision)
            downloads.append(paths.CHECKPOINT.format(checkpoint=key))
    is_fetched = all(any(Path().glob(pattern)) for pattern in downloads)
    least = host.GIB * (RESULTS_GIB if is_fetched else RESULTS_GIB + FETCHED_GIB)
    text = f"{size_text(free)} are free in this folder, which needs at least {size_text(least)}"
    return Finding(FAILS if free < least else FINE, "disk", text, "free some space")


def _host(specs: Sequence[RunSpec]) -> Iterator[Finding]:
    """Whether /dev/shm holds the batches that workers prepare, and there are cores enough."""
    batches, processes_of_job = 0, 0  # the most bytes, and the most ranks and workers
    for spec in specs:
        ranks, loader, model = spec.count // spec.nodes, spec.settings.loader, spec.settings.model
        workers = 0 if loader.decode == "device" else loader.workers
        side_px = model.image_px or (TINY_PX if model.size == "tiny" else IMAGE_PX)
        picture = 3 * side_px**2 * (4 if loader.decode == "reference" else 1)
        pictures = workers * loader.prefetch_factor * spec.settings.train.batch_size
        batches = max(batches, ranks * pictures * picture)
        per_rank = 1 if spec.kind == "cpu" else 1 + workers
        processes_of_job = max(processes_of_job, ranks * per_rank)
    free = shutil.disk_usage(SHARED).free if SHARED.is_dir() else 0
    text = f"{size_text(free)} are free in {SHARED}; the workers' batches need {size_text(batches)}"
    remedy = "start the container with --shm-size=16g (or --ipc=host), or enlarge the tmpfs"
    yield Finding(FAILS if free < batches else FINE, "shared memory", text, remedy)
    cores, memory = host.cores_granted(), size_text(host.memory_gib() * host.GIB)
    text = f"{cores} cores, {memory} of memory; ranks and workers of a job: {processes_of_job}"
    remedy = "request more cores (on a cluster: cpus_per_task)"
    yield Finding(SLOW if cores < processes_of_job else FINE, "cores", text, remedy)


def _of_device(device: Device, specs: list[RunSpec]) -> Iterator[Finding]:
    """The findings about one device and the software of its jobs."""
    spec = specs[0]
    if spec.kind in plugins.declared(KINDS, "NOUNS"):
        cards = _cards(device, spec)
        yield cards
        if cards.outlook == FAILS:
            return
    try:
        if spec.nodes > 1 and not scheduler.this_job():
            raise DeviceError(f"a job on {spec.nodes} nodes must run inside a {scheduler.NAME} job")
        spec = launch.with_interpreter(spec, os.environ)
        environment = launch.launch_environment(spec, os.environ)
        for launcher in {run.launcher for run in specs}:
            launch.check_programs(msgspec.structs.replace(spec, launcher=launcher), environment)
    except DeviceError as error:
        yield Finding(FAILS, "software", str(error), "docs/first-hour.md shows a working set-up")
        return
    checks = []
    for check in CHECKS.get(spec.kind, CHECKS["cpu"]):
        studies = {
            run.study
            for run in specs
            for setting, values in check.needs.items()
            if attrgetter(setting)(run.settings) in values
        }
        if studies or not check.needs:
            checks.append((check, sorted(studies)))
    python = launch.interpreter(spec.software)
    codes = json.dumps([check.code for check, _ in checks]).replace("PYTHON", python)
    try:
        if "://" in (spec.software.container or ""):
            raise ValueError("its image would be fetched")
        command = launch.wrap(spec, [python, "-c", ASK, codes])
        answer = processes.ask(command, ANSWER_S, environment, dies_with_us=True)
        answers = json.loads(answer.stdout.strip().rpartition("\n")[2])
    except (*processes.NO_ANSWER, ValueError):
        text = f"{python} did not answer within {ANSWER_S} s, or its image is not here yet"
        remedy = "start it by hand, with the same modules and container"
        yield Finding(UNKNOWN, "Python", text, remedy)
        return
    for (check, names), (is_good, text) in zip(checks, answers, strict=True):
        outlook = FINE if is_good else check.outlook
        remedy = check.remedy.replace("PYTHON", python)
        yield Finding(outlook, check.subject, text or "no problem was found", remedy, names)


def _cards(device: Device, spec: RunSpec) -> Finding:
    """Whether the host has the model and number of accelerators that a job needs."""
    _, plural = plugins.declared(KINDS, "NOUNS")[spec.kind]
    machine, number = host.look(), spec.count // spec.nodes
    models = machine.models if machine.kind == spec.kind else []
    right = [m for m in models if not device.model_pattern or is_called(m, device.model_pattern)]
    text = ", ".join(f"{count} x {model}" for model, count in Counter(models).items())
    if len(right) >= number:
        return Finding(FINE, plural, text)
    text = f"a job needs {number} x {device.label}; this machine has {text or 'none'}"
    text += f"; {machine.remark}" if machine.remark else ""
    remedy = "use --device detected for this machine's devices, or run it where the device is"
    return Finding(FAILS, plural, text, remedy)
