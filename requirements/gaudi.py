"""Add to a Gaudi environment what training jobs lack: PYTHON requirements/gaudi.py [--dry-run].

Run it with the interpreter that has Intel's packages. It installs pins of gaudi.lock without
their dependencies, and replaces only libraries whose version optimum-habana bounds (OURS). All else
that is installed stays as it is: torch, numpy, pillow and setuptools are Intel's choices.
"""

import importlib.metadata
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).resolve().parent / "gaudi.lock"
OURS = (
    *("optimum-habana", "optimum", "transformers", "tokenizers", "accelerate", "huggingface-hub"),
    *("diffusers", "sentence-transformers"),
)
"""Libraries that must have the locked version."""
VENDORS = ("torch",)
"""Never installed: only Intel's build runs on Gaudi."""
INSTEAD = {"pillow": "pillow-simd"}
"""Packages that Intel's images have in place of others, with the same modules."""


def canonical(name: str) -> str:
    """A package's name in its canonical spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """The installed packages with their versions, by canonical name."""
    found = importlib.metadata.distributions()
    return {canonical(one.metadata["Name"]): one.version for one in found}


def missing(pins: list[str], present: dict[str, str]) -> list[str]:
    """The pins to install."""
    wanted = []
    for pin in pins:
        name, _, version = pin.partition("==")
        known = present.get(canonical(name)) or present.get(INSTEAD.get(canonical(name), ""))
        if canonical(name) in VENDORS or (known and canonical(name) not in OURS):
            continue
        if known != version:
            wanted.append(pin)
    return wanted


def main(arguments: list[str]) -> int | str:
    """Install what is missing; with --dry-run, print it."""
    if sys.version_info < (3, 11):  # noqa: UP036  # a vendor's interpreter may be older
        return f"{sys.executable} is Python {sys.version.split()[0]}; training needs 3.11 or 3.12"
    present = installed()
    if "habana-torch-plugin" not in present:
        return f"{sys.executable} has no habana-torch-plugin: run this with Intel's interpreter"
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    wanted = missing([line for line in lines if line and not line.startswith("#")], present)
    print("\n".join(wanted) or "nothing is missing")
    if "--dry-run" in arguments or not wanted:
        return 0
    replaced = {canonical(pin.split("==")[0]) for pin in wanted}
    kept = [f"{name}=={v}" for name, v in present.items() if name not in replaced and "+" not in v]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(kept))
        constraints.flush()
        install = ["-m", "pip", "install", "--no-deps", "--constraint", constraints.name, *wanted]
        return subprocess.run([sys.executable, *install], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
