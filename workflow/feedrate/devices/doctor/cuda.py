"""NVIDIA GPUs: torch's build against driver and GPUs, packages, and what slows the GPUs down."""

from collections.abc import Iterator

from feedrate.devices.base import Card
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Asked, Finding
from feedrate.devices.doctor._torch_builds import BUILDS, DRIVER_QUERY, advice, version
from feedrate.devices.host import tool_rows

QUESTIONS = {
    "cuda": "module('torch.version').cuda",
    "available": "module('torch').cuda.is_available()",
    "architectures": "module('torch').cuda.get_arch_list()",
    "torchao": "version('torchao')",
    "torchvision": "[version('torchvision'), module('torchvision.version').cuda]",
    # The only proof that torchvision has nvJPEG, and that the container lets it use the GPU.
    "nvjpeg": """(lambda torch, file: (
        module('PIL.Image').new('RGB', (16, 16)).save(file, 'JPEG'),
        list(module('torchvision.io').decode_jpeg(
            torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8), device='cuda').shape),
    )[1])(module('torch'), module('io').BytesIO())""",
    "nvml": "module('pynvml').nvmlInit() is None",
}
INSTALL = "run `make setup` again; where GPUs are elsewhere: `make setup GPU_DRIVER=<version>`"
TORCHAO = {
    "train.precision": ("fp8",),
    "train.optimizer": ("adamw_torch_4bit", "adamw_torch_8bit"),
}
"""Settings whose values need torchao."""
STATE = ("persistence_mode", "enforced.power.limit", "power.default_limit")
THROTTLED = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
"""The field's name before and after driver 535."""
REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of the throttle reasons that slow a GPU down (nvml.h, nvmlClocksThrottleReason…)."""


def findings(asked: Asked, cards: list[Card]) -> Iterator[Finding]:
    """All checks of this kind."""
    yield from _torch(asked)
    yield from _packages(asked)
    yield from _state()
    yield _processes(len(cards))


def _torch(asked: Asked) -> Iterator[Finding]:
    """The build of torch against the driver and the GPUs."""
    rows = tool_rows(list(DRIVER_QUERY), columns=2)
    driver = version(rows[0][0]) if rows else ()
    capabilities = [found for row in rows if (found := version(row[1]))]
    better = advice(rows[0][0], capabilities) if driver else ""
    again = f"remove .venv and run `make setup` again{better and f': {better}'}"
    cuda = asked.answers["cuda"]
    if error := asked.error("cuda"):
        yield Finding(FAILS, "torch", f"it cannot be imported ({error})", INSTALL)
        return
    if cuda is None:
        yield Finding(FAILS, "torch", f"{asked.answers['torch']} is a build for CPUs", again)
        return
    text = f"{asked.answers['torch']}, CUDA {cuda}, driver {rows[0][0] if rows else 'unknown'}"
    if asked.answers["available"] is not True:
        oldest = [build.driver for build in BUILDS if build.name[2:4] == cuda.split(".")[0]]
        if driver and oldest and driver < oldest[0]:
            yield Finding(FAILS, "torch", f"{text}, which is too old for it", again)
        else:
            use = "run nvidia-smi inside the job's software; a container needs --nv or --gpus all"
            yield Finding(FAILS, "torch", f"{text}, but torch finds no GPU", use)
        return
    names = asked.answers["architectures"]
    lacking = [gpu for gpu in dict.fromkeys(capabilities) if not _has_code(names, gpu)]
    for gpu in lacking:
        text = f"{text} has no code for compute capability {'.'.join(map(str, gpu))}"
        yield Finding(FAILS, "torch", text, again)
    if not lacking:
        yield Finding(FINE, "CUDA", text)


def _has_code(architectures: list[str], gpu: tuple[int, ...]) -> bool:
    """Whether one of torch's architectures runs on a GPU: code of the same major version and no
    higher minor one (`sm_86`), or PTX of no higher version (`compute_90`)."""
    for name in architectures:
        kind, _, digits = name.partition("_")
        number = digits.rstrip("af")
        has = (int(number[:-1]), int(number[-1]))
        if has <= gpu and (kind == "compute" or has[0] == gpu[0]):
            return True
    return False


def _packages(asked: Asked) -> Iterator[Finding]:
    """torchvision with nvJPEG and torchao, if a run needs them, and NVML."""
    without = "or remove {} from the device's capabilities in config/devices.yaml"
    if studies := asked.studies("loader.decode", ["device"]):
        error = asked.error("torchvision") or asked.error("nvjpeg")
        built, torch_cuda = (asked.answers.get("torchvision"), asked.answers.get("cuda"))
        if error:
            use = f"{INSTALL}, {without.format('decode_device')}"
            text = f"decoding on the GPU fails ({error})"
            yield Finding(FAILS, "torchvision", text, use, studies)
        elif isinstance(built, list) and built[1] != torch_cuda:
            text = f"{built[0]} is built for CUDA {built[1]}, and torch for {torch_cuda}"
            yield Finding(FAILS, "torchvision", text, INSTALL, studies)
        else:
            yield Finding(FINE, "torchvision", "nvJPEG decodes on the GPU")
    of = (asked.studies(setting, values) for setting, values in TORCHAO.items())
    if studies := sorted({study for found in of for study in found}):
        if error := asked.error("torchao"):
            use = f"{INSTALL}, {without.format('fp8 and optimizer_8bit')}"
            yield Finding(FAILS, "torchao", f"it is needed and missing ({error})", use, studies)
        else:
            yield Finding(FINE, "torchao", str(asked.answers["torchao"]))
    if error := asked.error("nvml"):
        yield Finding(UNKNOWN, "energy", f"nvidia-ml-py cannot read it ({error})", INSTALL)


def _state() -> Iterator[Finding]:
    """Power limits, throttling and persistence mode, as nvidia-smi reports them now."""
    rows: list[list[str]] = []
    for throttled in THROTTLED:
        fields = ",".join((*STATE, throttled))
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        if rows := tool_rows(command, columns=len(STATE) + 1):
            break
    if not rows:
        yield Finding(UNKNOWN, "clocks", "nvidia-smi does not tell power limits", "run nvidia-smi")
        return
    slow = list(_slow(rows))
    yield from slow
    if not slow:
        yield Finding(FINE, "clocks", "no GPU is throttled, and power limits are the default")


def _slow(rows: list[list[str]]) -> Iterator[Finding]:
    """What slows each GPU down."""
    for number, (_, limit, default, reasons) in enumerate(rows):
        if (now := _number(limit)) < (usual := _number(default)):
            text = f"the power limit of GPU {number} is {now:.0f} W; its default is {usual:.0f} W"
            yield Finding(SLOW, "power", text, f"sudo nvidia-smi -i {number} -pl {usual:.0f}")
        bits = int(reasons, 16) if reasons.startswith("0x") else 0
        if found := [name for bit, name in REASONS.items() if bits & bit]:
            text = f"GPU {number} is throttled ({', '.join(found)})"
            yield Finding(SLOW, "clocks", text, "look at cooling and power supply: nvidia-smi -q")
    if any(row[0] == "Disabled" for row in rows):
        text = "persistence mode is off, so the driver starts again for each job"
        yield Finding(SLOW, "driver", text, "sudo nvidia-smi -pm 1")


def _number(text: str) -> float:
    """A number of nvidia-smi; zero for one that it does not know."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _processes(gpus: int) -> Finding:
    """Whether other processes use the GPUs."""
    query = "--query-compute-apps=pid,process_name,used_memory"
    rows = tool_rows(["nvidia-smi", query, "--format=csv,noheader"], columns=3)
    if not rows:
        return Finding(FINE, "GPUs in use", f"no other process uses the {gpus} GPUs")
    who = "; ".join(f"pid {pid} ({name}, {memory})" for pid, name, memory in rows)
    use = "wait for it, or set CUDA_VISIBLE_DEVICES to free GPUs"
    return Finding(SLOW, "GPUs in use", f"other processes use them: {who}", use)
