"""Gaudi cards: the driver's tool, Intel's software in the jobs' interpreter, and its variables."""

from collections.abc import Iterator

from feedrate.devices.doctor import FAILS, FINE, UNKNOWN, Asked, Finding
from feedrate.devices.host import tool_rows
from feedrate.devices.kinds._habana import INTELS_TORCH

INSTALL = "add only what is missing: `PYTHON requirements/gaudi.py`"
QUESTIONS = {
    "bridge": "module('habana_frameworks.torch.hpu').is_available()",
    "optimum": "version('optimum-habana')",
    "media": "module('habana_frameworks.mediapipe').__name__",
    "pip": "output(sys.executable, '-m', 'pip', '--version').split()[1]",
    "mpirun": "output('mpirun', '--version').split('\\n')[0]",
    "variables": """{name: [os.environ.get(name, ''), all(map(os.path.exists,
        filter(None, os.environ.get(name, '').split(':'))))] for name in (
        'GC_KERNEL_PATH', 'HABANA_SCAL_BIN_PATH', 'HABANA_PLUGINS_LIB_PATH')}""",
}
REQUIRED = ("GC_KERNEL_PATH",)
"""Without it no graph compiles (Intel's guide for bare metal); the others have defaults."""


def findings(asked: Asked) -> Iterator[Finding]:
    """All checks of this kind."""
    rows = tool_rows(["hl-smi", "-Q", "driver_version", "-f", "csv,noheader"], columns=1)
    if rows:
        yield Finding(FINE, "driver", rows[0][0])
    else:
        use = "install habanalabs-firmware-tools; in a container, mount /usr/bin/hl-smi"
        yield Finding(UNKNOWN, "driver", "hl-smi does not answer", use)
    yield _bridge(asked)
    yield from _packages(asked)
    yield from _variables(asked)


def _bridge(asked: Asked) -> Finding:
    """Whether the device's module can be imported with this torch."""
    torch = str(asked.answers["torch"])
    stock = "" if INTELS_TORCH.match(torch) else ", a stock build and not Intel's"
    if error := asked.error("bridge"):
        use = (
            "reinstall Intel's torch (`habanalabs-installer.sh install --type pytorch`), or use "
            "Intel's container"
        )
        text = f"it cannot be imported with torch {torch}{stock} in {asked.python} ({error})"
        return Finding(FAILS, "habana_frameworks", text, use)
    if asked.answers["bridge"] is not True:
        use = "look at hl-smi and dmesg; a container needs --runtime=habana"
        return Finding(FAILS, "habana_frameworks", "it finds no device", use)
    return Finding(FINE, "habana_frameworks", f"with torch {torch}{stock}")


def _packages(asked: Asked) -> Iterator[Finding]:
    """optimum-habana, the pip that it runs, Open MPI, and the media loader if a run needs it."""
    install = INSTALL.replace("PYTHON", asked.python)
    yield asked.package("optimum-habana", ("optimum",), install)
    use = f"optimum-habana runs it; install it: `{asked.python} -m ensurepip`"
    yield asked.package("pip", ("pip",), use)
    if any(spec.launcher == "mpirun" for spec in asked.specs):
        yield asked.package("Open MPI", ("mpirun",), "install it, or use `launcher: torchrun`")
    if studies := asked.studies({"loader.decode": ["device"]}):
        use = (
            "install habana-media-loader for your version of the Gaudi software (Intel's licence), "
            "or remove decode_device from the device's capabilities in config/devices.yaml"
        )
        yield asked.package("media loader", ("media",), use, studies)


def _variables(asked: Asked) -> Iterator[Finding]:
    """The variables of Intel's images, and whether what they name exists."""
    for name, (value, exists) in asked.answers["variables"].items():
        if value and exists:
            yield Finding(FINE, name, value)
        elif value or name in REQUIRED:
            text = f"{value} does not exist" if value else "it is not set"
            use = "set it in the device's entry, `software: {environment: …}` (docs/first-hour.md)"
            yield Finding(FAILS, name, text, use)
