"""Gaudi cards: the driver's tool, and Intel's software in the jobs' interpreter."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.devices.doctor import FAILS, FINE, UNKNOWN, Finding, package, studies_with
from feedrate.devices.host import tool_rows
from feedrate.devices.kinds._habana import INTELS_TORCH

INSTALL = "add only what is missing: `PYTHON requirements/gaudi.py`"
SCRIPT = """
@answer
def habana_frameworks():
    import habana_frameworks.torch.hpu
    return habana_frameworks.torch.hpu.is_available()
@answer
def optimum():
    return version("optimum-habana")
@answer
def media():
    import habana_frameworks.mediapipe
    return "habana_frameworks.mediapipe"
@answer
def kernels():
    return [path for path in os.environ["GC_KERNEL_PATH"].split(":") if not os.path.exists(path)]
@answer
def pip():
    command = [sys.executable, "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.split()[1]
"""


def findings(
    specs: Sequence[RunSpec], answers: Mapping[str, Any], errors: Mapping[str, str]
) -> Iterator[Finding]:
    """All checks of this kind."""
    rows = tool_rows(["hl-smi", "-Q", "driver_version", "-f", "csv,noheader"], columns=1)
    if not rows:
        use = "install habanalabs-firmware-tools; in a container, mount /usr/bin/hl-smi"
        yield Finding(UNKNOWN, "driver", "hl-smi does not answer", use)
    bridge, torch = "habana_frameworks", f"torch {answers.get('torch')}"
    if not INTELS_TORCH.match(torch):
        torch += ", a stock build and not Intel's"
    if bridge in errors:
        use = (
            "use Intel's container or its torch (`habanalabs-installer.sh install --type pytorch`)"
        )
        text = f"it cannot be imported with {torch} in PYTHON ({errors[bridge]})"
        yield Finding(FAILS, bridge, text, use)
    elif not answers[bridge]:
        use = "look at hl-smi and dmesg; a container needs --runtime=habana"
        yield Finding(FAILS, bridge, "it finds no device", use)
    else:
        yield Finding(FINE, bridge, f"with {torch}")
    yield package("optimum", answers, errors, INSTALL)
    use = "optimum-habana runs it; install it: `PYTHON -m ensurepip`"
    yield package("pip", answers, errors, use)
    if studies := studies_with(specs, {"loader.decode": ("device",)}):
        use = (
            "install habana-media-loader for your version of the Gaudi software (Intel's licence), "
            "or remove decode_device from the device's capabilities in config/devices.yaml"
        )
        yield package("media", answers, errors, use, *studies)
    if "kernels" in errors or answers["kernels"]:  # without it no graph compiles
        text = (
            f"{answers['kernels'][0]} does not exist" if "kernels" in answers else "it is not set"
        )
        use = "set it in the device's entry, `software: {environment: …}` (docs/first-hour.md)"
        yield Finding(FAILS, "GC_KERNEL_PATH", text, use)
