"""NVIDIA GPUs: torch's build against driver and GPUs, packages, and what slows the GPUs down."""

import re
from collections.abc import Iterator

from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Asked, Finding
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
AGAIN = "remove .venv and run `make setup`, which chooses the torch for this driver and GPU"
DRIVERS = {"13": (580,), "12": (525, 60, 13)}
"""Oldest driver of each major version of CUDA, as in requirements/torch_index.py."""
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


def findings(asked: Asked) -> Iterator[Finding]:
    """All checks of this kind."""
    yield _torch(asked)
    yield from _packages(asked)
    yield from _state() or [Finding(FINE, "clocks", "no GPU is throttled or limited in power")]
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory"]
    if rows := tool_rows([*query, "--format=csv,noheader"], columns=3):
        who = "; ".join(f"pid {pid} ({name}, {memory})" for pid, name, memory in rows)
        use = "wait for it, or set CUDA_VISIBLE_DEVICES to free GPUs"
        yield Finding(SLOW, "GPUs in use", f"other processes use them: {who}", use)


def _torch(asked: Asked) -> Finding:
    """The build of torch against the driver and the GPUs."""
    query = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    rows = tool_rows(query, columns=2)
    driver, cuda = rows[0][0] if rows else "unknown", asked.answers["cuda"]
    if error := asked.error("cuda"):
        return Finding(FAILS, "torch", f"it cannot be imported ({error})", INSTALL)
    if cuda is None:
        return Finding(FAILS, "torch", f"{asked.answers['torch']} is a build for CPUs", AGAIN)
    text = f"{asked.answers['torch']} for CUDA {cuda}, with driver {driver}"
    if asked.answers["available"] is not True:
        # A container may bring a newer driver's libraries, so the version alone decides nothing.
        oldest = DRIVERS.get(cuda.split(".")[0], ())
        if rows and _version(driver) < oldest:
            needed = ".".join(map(str, oldest))
            return Finding(FAILS, "torch", f"{text}, which needs driver {needed}", AGAIN)
        use = "run nvidia-smi inside the job's software; a container needs --nv or --gpus all"
        return Finding(FAILS, "torch", f"{text}, finds no GPU", use)
    for capability in {row[1] for row in rows if _version(row[1])}:
        if not _has_code(asked.answers["architectures"], _version(capability)):
            text = f"{text}, has no code for compute capability {capability}"
            return Finding(FAILS, "torch", text, AGAIN)
    return Finding(FINE, "CUDA", text)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _has_code(architectures: list[str], gpu: tuple[int, ...]) -> bool:
    """Whether one of torch's architectures runs on a GPU: code of the same major version and no
    higher minor one (`sm_86`), or PTX of no higher version (`compute_90`)."""
    for kind, major, minor in re.findall(r"(sm|compute)_(\d+)(\d)", " ".join(architectures)):
        has = (int(major), int(minor))
        if has <= gpu and (kind == "compute" or has[0] == gpu[0]):
            return True
    return False


def _packages(asked: Asked) -> Iterator[Finding]:
    """torchvision with nvJPEG and torchao, if a run needs them, and NVML."""
    use = f"{INSTALL}, or remove {{}} from the device's capabilities in config/devices.yaml"
    if studies := asked.studies("loader.decode", ["device"]):
        error = asked.error("torchvision") or asked.error("nvjpeg")
        cuda, built = asked.answers["cuda"], asked.answers["torchvision"]
        if not error and built[1] != cuda:
            error = f"{built[0]} is built for CUDA {built[1]}, and torch for {cuda}"
        text = f"decoding on the GPU fails ({error})" if error else "nvJPEG decodes on the GPU"
        remedy = use.format("decode_device") if error else ""
        yield Finding(FAILS if error else FINE, "torchvision", text, remedy, studies)
    of_settings = (asked.studies(setting, values) for setting, values in TORCHAO.items())
    if studies := sorted({study for found in of_settings for study in found}):
        error = asked.error("torchao")
        text = f"it is missing ({error})" if error else str(asked.answers["torchao"])
        remedy = use.format("fp8 and optimizer_8bit") if error else ""
        yield Finding(FAILS if error else FINE, "torchao", text, remedy, studies)
    if error := asked.error("nvml"):
        yield Finding(UNKNOWN, "energy", f"nvidia-ml-py cannot read it ({error})", INSTALL)


def _state() -> list[Finding]:
    """What slows GPUs down now, as nvidia-smi reports it: power limits, throttling, persistence."""
    rows: list[list[str]] = []
    for throttled in THROTTLED:
        fields = f"--query-gpu={','.join((*STATE, throttled))}"
        command = ["nvidia-smi", fields, "--format=csv,noheader,nounits"]
        rows = rows or tool_rows(command, columns=len(STATE) + 1)
    if not rows:
        text = "nvidia-smi does not tell power limits and throttling"
        return [Finding(UNKNOWN, "clocks", text, "look at nvidia-smi -q")]
    found = []
    for number, (_, limit, usual, reasons) in enumerate(rows):
        if () < _version(limit) < _version(usual):
            text = f"the power limit of GPU {number} is {limit} W; its default is {usual} W"
            found.append(Finding(SLOW, "power", text, f"sudo nvidia-smi -i {number} -pl {usual}"))
        bits = int(reasons, 16) if reasons.startswith("0x") else 0
        if why := ", ".join(name for bit, name in REASONS.items() if bits & bit):
            use = "look at cooling and power supply: nvidia-smi -q"
            found.append(Finding(SLOW, "clocks", f"GPU {number} is throttled ({why})", use))
    if any(row[0] == "Disabled" for row in rows):
        text = "persistence mode is off, so the driver starts again for each job"
        found.append(Finding(SLOW, "driver", text, "sudo nvidia-smi -pm 1"))
    return found
