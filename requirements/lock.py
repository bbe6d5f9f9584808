"""Renew the locks: resolve the .in files in a fresh environment, and write down what came out.

run.lock is all that `make run` installs, dev.lock what the tests and checks add. environment.yml
and envs/*.yaml say the same for conda users.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = "3.11"
JOBS = {
    "cpu": "Training on the CPU",
    "cuda": "Training on NVIDIA GPUs",
    "report": "Data, parsing, tables, figures and the report",
}


def main() -> None:
    """Write all files."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder) / "bin/pip"), "--quiet", "--disable-pip-version-check"]
        torch = next(line for line in names("run") if line.startswith("torch=="))
        install(pip, torch)
        install(pip, "-r", str(HERE / "run.in"))
        run = freeze(pip)
        install(pip, "-r", str(HERE / "dev.in"))
        dev = [pin for pin in freeze(pip) if pin not in run]
    write(HERE / "run.lock", ["# Written by `make lock`."] + run)
    write(HERE / "dev.lock", ["# Written by `make lock`."] + dev)
    root = HERE.parent
    lines = conda("feedrate", "The driver's environment", run, package="-e .")
    write(root / "environment.yml", lines)
    direct = {re.split(r"[=<>]", name)[0] for name in names("run")}
    pins = [pin for pin in run if pin.split("==")[0].lower() in direct]
    for kind, what in JOBS.items():
        write(root / f"envs/{kind}.yaml", conda(f"feedrate-{kind}", what, pins))


def names(part: str) -> list[str]:
    """The requirements of an .in file."""
    lines = (HERE / f"{part}.in").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def install(pip: list[str], *what: str) -> None:
    """Install into the fresh environment."""
    subprocess.run([*pip, "install", *what], check=True)


def freeze(pip: list[str]) -> list[str]:
    """The exact set, without local build labels such as torch's +cpu."""
    command = [*pip, "freeze", "--all", "--exclude", "pip"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [re.sub(r"\+\w+$", "", line) for line in lines.splitlines() if "==" in line]


def conda(name: str, what: str, pins: list[str], package: str = "") -> list[str]:
    """The lines of a conda environment file; the pins are pip's, so that both say the same."""
    return [
        f"# {what}. Written by `make lock`; the pins are those of requirements/run.lock.",
        f"name: {name}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - python={PYTHON}",
        "  - pip",
        "  - pip:",
        *(f"      - {pin}" for pin in pins),
        *([f"      - {package}"] if package else []),
    ]


def write(path: Path, lines: list[str]) -> None:
    """Write lines to a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.relative_to(HERE.parent)}: {len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
