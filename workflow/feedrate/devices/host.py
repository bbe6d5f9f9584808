"""The host: the job's share of it, its accelerators, and the lock that makes jobs take turns."""

import contextlib
import errno
import fcntl
import importlib.metadata
import itertools
import math
import os
import platform
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import msgspec
import psutil

from feedrate.config.devices import Machine
from feedrate.config.spec import KINDS, LIBRARIES
from feedrate.core import plugins, variables
from feedrate.core.errors import tell
from feedrate.core.processes import NO_ANSWER, ask
from feedrate.devices.base import adapter_class

GIB = 2**30

PACKAGES = (
    "feedrate", "torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy",
    "pillow", "pyarrow", "tensorboard", "msgspec", "torchao", "torchvision", "simplejpeg",
)  # fmt: skip
"""Packages whose version may change a measurement on any kind of device."""

WORKERS = (("feedrate", "worker"), ("feedrate_loaders", "worker"))
"""Neighbouring words in the command line of each process that trains or feeds."""

DEV, PROC, SYS = Path("/dev"), Path("/proc"), Path("/sys")
AMD = (("0x1002", "0x1200"), ("0x1002", "0x0380"))
"""PCI vendor and class of AMD's accelerators, which no kind drives. Its other GPUs draw screens."""
TOOL_S = 60.0  # nvidia-smi wakes every GPU if no persistence daemon runs


def kernel_text(path: Path) -> str:
    """A kernel file's text without surrounding white space; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def kernel_number(path: Path, default: int) -> int:
    """The number in a kernel file."""
    try:
        return int(kernel_text(path))
    except ValueError:
        return default


def numa_node(device: Path) -> int | None:
    """The NUMA node of a device; None if the firmware does not report it (the kernel says -1)."""
    node = kernel_number(device / "numa_node", -1)
    return node if node >= 0 else None


def parse_list(text: str) -> list[int]:
    """The numbers of a kernel's list, such as "0-3,8"; empty if it is not such a list."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return []
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def tool_rows(command: list[str], form: str) -> list[list[str]]:
    """The fields of the lines of a driver's tool that match `form`, whatever its exit code: for an
    infoROM that is damaged, nvidia-smi ends a whole answer with 14. Its other lines are shown, but
    without a line that matches, it is as if the tool were absent."""
    try:
        answer = ask(command, TOOL_S)
    except NO_ANSWER:
        return []
    lines = [line.strip() for line in (answer.stdout + answer.stderr).splitlines()]
    rows = [line for line in lines if re.fullmatch(form, line, re.IGNORECASE)]
    others = [line for line in lines if line and line not in rows]
    if rows and (others or answer.returncode):
        warning = " ".join(others) or "it gives no reason"
        _warn(f"{command[0]} ended with exit code {answer.returncode}: {warning}")
    return [[field.strip() for field in row.split(",")] for row in rows]


_warn = cache(partial(tell, "feedrate"))  # shows a warning once


def cores_granted(affinity: int | None = None) -> int:
    """Cores of this job: its affinity (or `affinity`), if its cgroup's quota is not smaller."""
    quota = min(map(_quota, _cgroup_folders("cpu")), default=math.inf)
    cores = len(os.sched_getaffinity(0)) if affinity is None else affinity
    return max(1, int(min(cores, quota)))


def memory_gib() -> float:
    """Memory that this job may use, GiB: the host's, or its cgroup's limit if that is smaller."""
    limits = [psutil.virtual_memory().total]
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = kernel_text(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits) / GIB


def bf16_instructions() -> list[str]:
    """The flags for multiplying in bf16; a processor without any computes bf16 in fp32."""
    flags = re.search(r"^flags.*", kernel_text(PROC / "cpuinfo"), re.M)
    words = flags[0].split() if flags else []
    return [name for name in ("amx_bf16", "avx512_bf16") if name in words]


def other_training_jobs() -> int:
    """The number of processes of feedrate on this host that train, drain or feed."""
    count = 0
    for process in psutil.process_iter(["cmdline"]):
        neighbours = itertools.pairwise(process.info["cmdline"] or ())
        count += not set(WORKERS).isdisjoint(neighbours)
    return count


def is_of_this_job(number: int) -> bool:
    """Whether a process is this one, a child of it, or another rank of the host: a sibling."""
    try:
        return number == os.getpid() or psutil.Process(number).ppid() in (os.getpid(), os.getppid())
    except psutil.Error:
        return False


def oom_kills() -> int:
    """Processes of this cgroup that the kernel has killed for lack of memory; of the whole host if
    the cgroup does not count them."""
    files = [
        folder / name
        for folder in reversed(_cgroup_folders("memory"))
        for name in ("memory.events", "memory.oom_control")
    ]
    for file in (*files, PROC / "vmstat"):
        match = re.search(r"^oom_kill (\d+)", kernel_text(file), re.M)
        if match:
            return int(match[1])
    return 0


def machine_state() -> dict[str, Any]:
    """The part of the machine's state before a run that may disturb the run."""
    load = os.getloadavg()
    try:
        clock = psutil.cpu_freq()
    except (NotImplementedError, OSError):
        clock = None
    return {
        "load_1min": round(load[0], 2),
        "load_5min": round(load[1], 2),
        "other_training_jobs": other_training_jobs(),
        "cores_granted": cores_granted(),
        "cpu_mhz": round(clock.current, 1) if clock else None,
        "cpu_governor": kernel_text(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def host_facts() -> dict[str, Any]:
    """The host's part of the `start` event, without the cores granted to the job."""
    packages = {}
    kinds = plugins.declared(KINDS, "RECORDED_PACKAGES").values()
    loaders = plugins.declared(LIBRARIES, "PACKAGES").values()
    for name in itertools.chain(PACKAGES, *kinds, *loaders):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "host": socket.gethostname(),
        "cores_of_host": os.cpu_count() or 1,
        "host_memory_gib": memory_gib(),
        "bf16_instructions": bf16_instructions(),
        "packages": packages,
        "firmware": firmware(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def firmware() -> dict[str, str]:
    """Version by name of the firmware of all processors and cards; where they differ, all. It is in
    a line that begins with its name, or in a file of its name; with "?" it is not yet known."""
    versions: dict[str, str] = {}
    for patterns in plugins.declared(KINDS, "FIRMWARE").values():
        for name, pattern in patterns.items():
            files = PROC.parent.glob(pattern)
            text = "\n".join(f"{file.name}:\n{kernel_text(file)}" for file in files)
            values = set(re.findall(rf"^{name}\s*:\s*([^?\s][^?\n]*)$", text, re.MULTILINE))
            if values:
                versions[name] = ", ".join(sorted(values))
    return versions


def _cgroup_folders(controller: str) -> list[Path]:
    """The folders of this process's cgroup and its parents, for one controller (v1 or v2)."""
    folders: list[Path] = []
    for line in kernel_text(PROC / "self/cgroup").splitlines():
        _, names, inner = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = SYS / "fs/cgroup" / (controller if names else "")
        # In a container the path may be the host's, and only the root can be read.
        parts = Path(inner.lstrip("/")).parts
        folders.extend(root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))
    return folders


def _quota(folder: Path) -> float:
    """Cores that a cgroup's quota allows; infinite if it has none."""
    text = kernel_text(folder / "cpu.max")  # v2: "<quota or max> <period>"
    if not text:
        quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
        text = f"{kernel_text(quota)} {kernel_text(period)}"
    match = re.fullmatch(r"(\d+)\s+(0*[1-9]\d*)", text, re.ASCII)
    return int(match[1]) / int(match[2]) if match else math.inf  # v1 says -1 for "no quota"


def machine() -> Machine:
    """The accelerators of this machine. The main process looks for them once, for its jobs too."""
    if variables.DETECTED not in os.environ:
        os.environ[variables.DETECTED] = msgspec.json.encode(look()).decode()
    return msgspec.json.decode(os.environ[variables.DETECTED], type=Machine)


def look(environment: Mapping[str, str] = os.environ) -> Machine:
    """Find the accelerators that a process with this environment can use. In a container or a job,
    only accelerators that are open to its processes count."""
    name = platform.node()
    nouns = plugins.declared(KINDS, "NOUNS")
    all_cards = {kind: adapter_class(kind).cards() for kind in plugins.names(KINDS)}
    kinds = [kind for kind, cards in all_cards.items() if cards]
    if not kinds:
        return Machine(host=name, remark=_why_none(name, nouns))
    if len(kinds) > 1:
        names = " and ".join(nouns[kind][1] for kind in kinds)
        return Machine(host=name, remark=f"{name} has both {names}")
    kind = kinds[0]
    cards = all_cards[kind]
    variable = plugins.declared(KINDS, "VISIBLE").get(kind, "")
    if variable in environment:
        cards = adapter_class(kind).visible(cards, environment[variable])
    faults = [card.fault for card in cards or all_cards[kind] if card.fault]
    if faults:
        return Machine(host=name, remark=f"the {nouns[kind][1]} of {name} are {faults[0]}")
    if not cards:
        hidden = f"{variable}={environment[variable]} hides all accelerators of {name}"
        return Machine(host=name, remark=hidden)
    return Machine(host=name, kind=kind, models=[card.model for card in cards])


def _why_none(name: str, nouns: Mapping[str, tuple[str, str]]) -> str:
    """Why `name` has no accelerator: no hardware, or hardware without a driver."""
    vendors = plugins.declared(KINDS, "PCI_VENDOR")
    devices = {
        (kernel_text(device / "vendor"), kernel_text(device / "class")[:6])
        for device in SYS.glob("bus/pci/devices/*")
    }
    # Display controllers (03) and processing accelerators (12), not a GPU's sound.
    makers = {maker for maker, device_class in devices if device_class[:4] in ("0x03", "0x12")}
    idle = [singular for kind, (singular, _) in nouns.items() if vendors.get(kind) in makers]
    if idle:
        return f"{name} has {' and '.join(idle)}, but no driver of it answers"
    if not devices.isdisjoint(AMD):
        return f"{name} has an AMD accelerator, and feedrate has no kind of device for ROCm"
    return f"no accelerator was found on {name}"


POLL_S = 0.5  # between tries to take the host's lock


@contextlib.contextmanager
def host_lock(
    tell: Callable[[str], None], check: Callable[[], None] = lambda: None
) -> Iterator[list[int]]:
    """Hold the lock of this host, because two jobs that measure at once would disturb each other.
    If another job holds it, say so once with `tell` and wait; `check` may raise an error to give
    up. Processes that inherit the file descriptors that it yields hold the lock too.

    It is two files: one in the project, for containers and jobs with a folder of their own for
    temporary files, and one in that folder, for this user's other projects. The kernel's boot id
    tells hosts that share a folder apart."""
    boot = kernel_text(PROC / "sys/kernel/random/boot_id")
    project = Path(".snakemake") / f"feedrate.host.{boot}"
    project.parent.mkdir(exist_ok=True)
    temporary = Path(tempfile.gettempdir()) / f"feedrate.{os.getuid()}.{boot}"
    with project.open("ab") as first, temporary.open("ab") as second:
        is_waiting = False
        for stream in (first, second):
            while not _lock(stream):
                if not is_waiting:
                    tell(f"waiting: another job of feedrate runs on this host ({stream.name})")
                is_waiting = True
                check()
                time.sleep(POLL_S)
        yield [first.fileno(), second.fileno()]


def _lock(stream: IO[bytes]) -> bool:
    """Whether the file was free, or is on a file system without locks, where the other counts."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
    return True
