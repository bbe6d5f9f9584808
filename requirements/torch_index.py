"""Which build of torch runs with an NVIDIA driver and on a GPU; its package index.

`make setup` runs this file with any Python, before anything is installed: it imports the standard
library only. It prints the index for torch, empty for the default one, and explains on stderr.
"""

import re
import subprocess
import sys
from typing import NamedTuple

Version = tuple[int, ...]


class Build(NamedTuple):
    """A CUDA version that torch 2.13 is built with."""

    name: str
    driver: Version
    """Oldest driver that runs it."""
    oldest: Version
    newest: Version
    """First and last compute capability of the GPUs that it has code for."""

    @property
    def url(self) -> str:
        """The package index of this build."""
        return f"https://download.pytorch.org/whl/{self.name}"


BUILDS = (
    Build("cu130", (580,), (7, 5), (12, 99)),
    Build("cu126", (525, 60, 13), (5, 0), (9, 99)),
)
"""The best first; the first is the default of the package index. CUDA versions and architectures:
"PyTorch CUDA Support Matrix" in RELEASE.md of pytorch 2.13. Drivers: "Minor Version Compatibility"
in NVIDIA's CUDA Compatibility guide (13.x from 580, 12.x from 525)."""

DRIVER_QUERY = ("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader")


def version(text: str) -> Version:
    """The numbers of a version such as `570.124.06`."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def build_for(driver: Version, capabilities: list[Version]) -> Build | None:
    """The best build for a driver and its GPUs; None if there is none."""
    for build in BUILDS:
        if driver >= build.driver and all(
            build.oldest <= gpu <= build.newest for gpu in capabilities
        ):
            return build
    return None


def advice(driver_text: str, capabilities: list[Version]) -> str:
    """Which build fits if the default one does not; empty if it does."""
    driver, best = version(driver_text), BUILDS[0]
    build = build_for(driver, capabilities)
    why = f"the default torch needs NVIDIA driver {best.driver[0]}, and this one is {driver_text}"
    if driver >= best.driver:
        gpu = ".".join(map(str, min(capabilities, default=())))
        why = f"the default torch has no code for a GPU of compute capability {gpu}"
    if build is None:
        return f"{why}; no build of torch 2.13 fits: update the driver to {best.driver[0]} or newer"
    return "" if build is best else f"{why}; torch from TORCH_INDEX={build.url} fits"


def main(arguments: list[str]) -> int:
    """Print the index for the driver in `arguments`, else for this machine's. Returns 1 if no build
    fits."""
    rows = [argument.split(",") for argument in arguments] or _ask()
    if not rows:
        return 0
    driver = rows[0][0]
    capabilities = [found for row in rows for text in row[1:] if (found := version(text))]
    build, said = build_for(version(driver), capabilities), advice(driver, capabilities)
    if said:
        print(f"feedrate: {said}", file=sys.stderr)
    if build and build is not BUILDS[0]:
        print(build.url)
    return int(build is None)


def _ask() -> list[list[str]]:
    """Driver version and compute capability of each GPU, as nvidia-smi prints them, whatever its
    exit code; none without an answer. What else it says is shown."""
    try:
        answer = subprocess.run(
            DRIVER_QUERY, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = (answer.stdout + answer.stderr).splitlines()
    rows = [line for line in lines if re.fullmatch(r"[\d.]+, *\S+", line)]
    if rows and (answer.returncode or len(lines) > len(rows)):
        others = " ".join(line for line in lines if line not in rows)
        print(f"feedrate: nvidia-smi ended with {answer.returncode}: {others}", file=sys.stderr)
    return [row.split(",") for row in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
