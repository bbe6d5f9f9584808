"""NVIDIA GPUs: torch's build against driver and GPUs, packages, and what slows the GPUs down."""

import re
from collections.abc import Iterator

from feedrate.devices.base import DeviceError
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Asked, Finding
from feedrate.devices.host import tool_rows
from feedrate.devices.kinds.cuda import check_architecture

QUESTIONS = {
    "cuda": "module('torch.version').cuda",
    "available": "module('torch').cuda.is_available()",
    "architectures": "module('torch').cuda.get_arch_list()",
    "torchao": "version('torchao')",
    "torchvision": "version('torchvision')",
    # The only proof that torchvision has nvJPEG, and that the container lets it use the GPU.
    "nvjpeg": """(lambda torch, file: (
        module('PIL.Image').new('RGB', (16, 16)).save(file, 'JPEG'),
        list(module('torchvision.io').decode_jpeg(
            torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8), device='cuda').shape),
    )[1])(module('torch'), module('io').BytesIO())""",
    "triton": "version('triton')",
    # Its first use builds a part in C, for which a machine may lack the compiler or Python.h.
    "builds": "module('triton').runtime.driver.active.get_current_target().arch",
    "nvml": "module('pynvml').nvmlInit() is None",
    # As every run notes it around its window.
    "conditions": """(lambda cuda: [
        cuda.gpu_condition(card.uuid.removeprefix('GPU-'), 0) for card in cuda.DeviceAdapter.cards()
    ])(module('feedrate.devices.kinds.cuda'))""",
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
TRITON = {
    "train.execution": ("compiled", "cuda_graphs"),
    "train.optimizer": TORCHAO["train.optimizer"],
}
"""Settings whose values need Triton: torchao compiles the steps of its optimizers."""
QUERY = ("nvidia-smi", "--format=csv,noheader")


def findings(asked: Asked) -> Iterator[Finding]:
    """All checks of this kind."""
    # One call: without persistence mode, each may take seconds.
    fields = "--query-gpu=driver_version,compute_cap,persistence_mode"
    rows = tool_rows([*QUERY, fields], columns=3)
    yield _torch(asked, rows)
    yield from _packages(asked)
    yield from _clocks(asked)
    if any(row[2] == "Disabled" for row in rows):
        text = "persistence mode is off, so the driver starts again for each job"
        yield Finding(SLOW, "driver", text, "sudo nvidia-smi -pm 1")
    apps = "--query-compute-apps=pid,process_name,used_memory"
    if used := tool_rows([*QUERY, apps], columns=3):
        who = "; ".join(f"pid {pid} ({name}, {memory})" for pid, name, memory in used)
        use = "wait for it, or set CUDA_VISIBLE_DEVICES to free GPUs"
        yield Finding(SLOW, "GPUs in use", f"other processes use them: {who}", use)


def _torch(asked: Asked, rows: list[list[str]]) -> Finding:
    """The build of torch against the driver and the GPUs: a row for each, which the driver gave."""
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
            return Finding(FAILS, "torch", f"{text}; it needs driver {needed}", AGAIN)
        use = "run nvidia-smi inside the job's software; a container needs --nv or --gpus all"
        return Finding(FAILS, "torch", f"{text}; it finds no GPU", use)
    for capability in {row[1] for row in rows if _version(row[1])}:
        major, minor = _version(capability)
        try:
            check_architecture((major, minor), asked.answers["architectures"])
        except DeviceError as error:
            return Finding(FAILS, "torch", str(error), AGAIN)
    return Finding(FINE, "CUDA", text)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _packages(asked: Asked) -> Iterator[Finding]:
    """torchvision, which decodes on the GPU, torchao, and Triton, which compiles, if a run needs
    them."""
    use = "{}, or remove {} from the device's capabilities in config/devices.yaml"
    if studies := asked.studies({"loader.decode": ["device"]}):
        remedy = use.format(INSTALL, "decode_device")
        yield asked.package("torchvision", ("torchvision", "nvjpeg"), remedy, studies)
    if studies := asked.studies(TORCHAO):
        remedy = use.format(INSTALL, "fp8 and optimizer_8bit")
        yield asked.package("torchao", ("torchao",), remedy, studies)
    if studies := asked.studies(TRITON):
        build = "install a C compiler and Python's headers (Ubuntu: gcc, python3-dev)"
        remedy = use.format(build, "compiled, graphs and optimizer_8bit")
        yield asked.package("Triton", ("triton", "builds"), remedy, studies)


def _clocks(asked: Asked) -> Iterator[Finding]:
    """The causes that lower the clocks of GPUs now."""
    error = asked.error("nvml") or asked.error("conditions")
    if not error and not all(asked.answers["conditions"]):
        error = "it does not find every GPU"
    if error:
        text = f"nvidia-ml-py cannot read energy, clocks and power limits ({error})"
        yield Finding(UNKNOWN, "NVML", text, INSTALL)
        return
    lowered = [
        f"GPU {number}: {reason}"
        for number, found in enumerate(asked.answers["conditions"])
        for reason in (*found.get("slowed_by", ()), *found.get("limited_by", ()))
    ]
    if lowered:
        use = "look at cooling, power supply and limits: nvidia-smi -q -d PERFORMANCE,POWER,CLOCK"
        yield Finding(SLOW, "clocks", f"they are lowered ({'; '.join(lowered)})", use)
    else:
        yield Finding(FINE, "clocks", "no GPU is throttled or limited in power")
