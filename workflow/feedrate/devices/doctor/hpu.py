"""Gaudi cards: the driver's tool, Intel's software in the jobs' interpreter, and its variables."""

from collections.abc import Iterator

from feedrate.devices.base import Card
from feedrate.devices.doctor import FAILS, FINE, UNKNOWN, Asked, Finding
from feedrate.devices.host import tool_rows
from feedrate.devices.kinds.hpu import VENDOR_PROFILE

INSTALL = "add only what is missing: `PYTHON requirements/gaudi.py`"
QUESTIONS = {
    "bridge": "module('habana_frameworks.torch.hpu').is_available()",
    "optimum": "version('optimum-habana')",
    "media": "importlib.util.find_spec('habana_frameworks.mediapipe') is not None",
    "pip": "output(sys.executable, '-m', 'pip', '--version').split()[1]",
    "mpirun": "output('mpirun', '--version').split('\\n')[0]",
    "variables": """{name: [os.environ.get(name, ''), all(map(os.path.exists,
        filter(None, os.environ.get(name, '').split(':'))))] for name in (
        'GC_KERNEL_PATH', 'HABANA_SCAL_BIN_PATH', 'HABANA_PLUGINS_LIB_PATH')}""",
}
USUAL = {
    "GC_KERNEL_PATH": "/usr/lib/habanalabs/libtpc_kernels.so",
    "HABANA_SCAL_BIN_PATH": "/opt/habanalabs/engines_fw",
    "HABANA_PLUGINS_LIB_PATH": "/opt/habanalabs/habana_plugins",
}
"""The variables of Intel's images (Dockerfiles of Setup_and_Install 1.22)."""
REQUIRED = ("GC_KERNEL_PATH",)
"""Without it no graph compiles (Intel's guide for bare metal); the others have defaults."""


def findings(asked: Asked, cards: list[Card]) -> Iterator[Finding]:  # noqa: ARG001
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
    stock = "" if "+git" in torch else ", a stock build and not Intel's,"
    if error := asked.error("bridge"):
        use = "reinstall Intel's torch: `habanalabs-installer.sh install --type pytorch`, or use "
        text = f"it cannot be imported with torch {torch}{stock} in {asked.python} ({error})"
        return Finding(FAILS, "habana_frameworks", text, f"{use}Intel's container")
    if asked.answers["bridge"] is not True:
        use = "look at hl-smi and dmesg; a container needs --runtime=habana"
        return Finding(FAILS, "habana_frameworks", "it finds no device", use)
    return Finding(FINE, "habana_frameworks", f"with torch {torch}{stock} in {asked.python}")


def _packages(asked: Asked) -> Iterator[Finding]:
    """optimum-habana, the pip that it calls, Open MPI, and the media loader if a run needs it."""
    install = INSTALL.replace("PYTHON", asked.python)
    if error := asked.error("optimum"):
        yield Finding(FAILS, "optimum-habana", f"it is missing ({error})", install)
    else:
        yield Finding(FINE, "optimum-habana", str(asked.answers["optimum"]))
    if asked.error("pip"):
        use = f"install it: `{asked.python} -m ensurepip`, or the package python3-pip"
        yield Finding(FAILS, "pip", f"optimum-habana asks `{asked.python} -m pip`: none", use)
    else:
        yield Finding(FINE, "pip", f"optimum-habana asks pip {asked.answers['pip']}")
    if any(spec.launcher == "mpirun" for spec in asked.specs):
        error, use = asked.error("mpirun"), "install Open MPI, or use `launcher: torchrun`"
        text = error or str(asked.answers["mpirun"])
        yield Finding(FAILS if error else FINE, "Open MPI", text, use if error else "")
    studies = asked.studies("loader.decode", ["device"])
    if studies and asked.answers["media"] is not True:
        use = (
            "install habana-media-loader of your Gaudi software's version (Intel's licence), or "
            "remove decode_device from the device's capabilities in config/devices.yaml"
        )
        yield Finding(FAILS, "media loader", "habana_frameworks.mediapipe is missing", use, studies)


def _variables(asked: Asked) -> Iterator[Finding]:
    """The variables of Intel's images, and whether what they name exists."""
    set_right = []
    for name, (value, exists) in asked.answers["variables"].items():
        if value and exists:
            set_right.append(name)
            continue
        required = name in REQUIRED
        if not value and not required:
            continue
        text = f"{name}={value} does not exist" if value else f"{name} is not set"
        use = (
            f"set it in the device's entry: `software: {{environment: {{{name}: {USUAL[name]}}}}}`,"
            f" or install {VENDOR_PROFILE}, which jobs read"
        )
        yield Finding(FAILS, "variables", text, use)
    if set_right:
        yield Finding(FINE, "variables", f"{', '.join(set_right)}")
