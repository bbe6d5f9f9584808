"""NVIDIA GPUs: torch's build, packages, and what slows the GPUs down."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Finding, package, studies_with
from feedrate.devices.host import tool_rows

SCRIPT = """
@answer
def build():
    import torch.version
    return torch.version.cuda, torch.cuda.is_available()
@answer
def torchvision():  # decoding proves that it has nvJPEG, and may use the GPU
    import io, torch
    from PIL import Image
    from torchvision.io import decode_jpeg
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG")
    decode_jpeg(torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8), device="cuda")
    return version("torchvision")
@answer
def torchao():
    return version("torchao")
@answer
def triton():  # its first use builds a part in C, which needs a compiler and Python.h
    import triton
    triton.runtime.driver.active.get_current_target()
    return version("triton")
@answer
def conditions():  # as every run notes them around its window
    import pynvml
    from feedrate.devices.kinds import cuda
    pynvml.nvmlInit()
    cards = cuda.DeviceAdapter.cards()
    return [cuda.gpu_condition(card.uuid.removeprefix("GPU-"), 0) for card in cards]
"""
INSTALL = "run `make setup` again; where GPUs are elsewhere: `make setup GPU_DRIVER=<version>`"
AGAIN = "remove .venv and run `make setup`, which chooses the torch for this driver and GPU"
COMPILER = "install a C compiler and Python's headers (Ubuntu: gcc, python3-dev)"
LOW_BITS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Optimizers of torchao, whose steps it compiles."""
NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "torchvision": {"loader.decode": ("device",)},
    "torchao": {"train.precision": ("fp8",), "train.optimizer": LOW_BITS},
    "triton": {"train.execution": ("compiled", "cuda_graphs"), "train.optimizer": LOW_BITS},
}
"""The settings that need a package."""
QUERY = ("nvidia-smi", "--format=csv,noheader")


def findings(
    specs: Sequence[RunSpec], answers: Mapping[str, Any], errors: Mapping[str, str]
) -> Iterator[Finding]:
    """All checks of this kind."""
    # One call: without persistence mode, each may take seconds.
    rows = tool_rows([*QUERY, "--query-gpu=driver_version,persistence_mode"], columns=2)
    cuda, available = answers.get("build", (None, False))
    text = (
        f"{answers.get('torch')} for CUDA {cuda}, with driver {rows[0][0] if rows else 'unknown'}"
    )
    if "build" in errors:
        yield Finding(FAILS, "torch", f"it cannot be imported ({errors['build']})", INSTALL)
    elif cuda is None:
        yield Finding(FAILS, "torch", f"{answers.get('torch')} is a build for CPUs", AGAIN)
    elif not available:
        use = f"if the driver is older than this CUDA needs: {AGAIN}; a container needs --nv or "
        yield Finding(FAILS, "torch", f"{text}, finds no GPU", f"{use}--gpus all")
    else:
        yield Finding(FINE, "CUDA", text)
    for name, settings in NEEDS.items():
        if studies := studies_with(specs, settings):
            use = COMPILER if name == "triton" else INSTALL
            use += ", or remove what needs it from the device's capabilities in config/devices.yaml"
            yield package(name, answers, errors, use, *studies)
    cards = answers.get("conditions", [])
    if "conditions" in errors or not all(cards):
        error = errors.get("conditions", "it does not find every GPU")
        text = f"nvidia-ml-py cannot read energy, clocks and power limits ({error})"
        yield Finding(UNKNOWN, "NVML", text, INSTALL)
    for number, card in enumerate(cards):
        if reasons := [*card.get("slowed_by", ()), *card.get("limited_by", ())]:
            use = "look at cooling, power supply and limits: nvidia-smi -q -d PERFORMANCE,POWER"
            yield Finding(SLOW, "clocks", f"GPU {number}: {', '.join(reasons)}", use)
    if any(row[1] == "Disabled" for row in rows):
        text = "persistence mode is off, so the driver starts again for each job"
        yield Finding(SLOW, "driver", text, "sudo nvidia-smi -pm 1")
    apps = "--query-compute-apps=pid,process_name,used_memory"
    for pid, name, memory in tool_rows([*QUERY, apps], columns=3):
        use = "wait for it, or set CUDA_VISIBLE_DEVICES to free GPUs"
        yield Finding(SLOW, "GPUs in use", f"by process {pid} ({name}, {memory})", use)
