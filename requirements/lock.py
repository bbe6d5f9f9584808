"""Update the lock files: install the .in files into a fresh environment and record the versions.

run.lock lists all that `make run` installs, cuda.lock what it adds on a machine with NVIDIA GPUs,
and dev.lock what the tests and checks add. gaudi.lock is the environment of training jobs on Gaudi;
the tests use it without a Gaudi. environment.yml and envs/*.yaml have the same versions for conda
users.
"""

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = "3.11"
JOBS = {
    "cpu": "Training on the CPU",
    "cuda": "Training on NVIDIA GPUs",
    "report": "Data, parsing, tables, figures and the report",
}
EXTRA = {"cuda": ["torchvision==0.28.0", "torchao==0.18.0", "nvidia-ml-py==13.615.71"]}
"""Packages that only one kind of job needs.

torchvision decodes on the GPU. Its minor version is torch's plus 15, and the build on the package
index cannot be imported with a CPU build of torch. torchao provides 8-bit optimizer states and fp8
multiplications. It is not installed for the CPU, because transformers imports it in every job,
which takes seconds. nvidia-ml-py reads the GPU's energy counter.
"""

LOADERS = "extras/loaders"
NEED_TORCH = ("torch", "accelerate", "optimum-habana")
"""Packages for which pip would install a torch that no Gaudi runs."""


def main() -> None:
    """Write all files."""
    with fresh_environment() as pip:
        run = resolve(pip, "run")
        dev = [pin for pin in resolve(pip, "dev") if pin not in run]
    with fresh_environment() as pip:
        gaudi = resolve(pip, "gaudi")
    locks = {"run": run, "cuda": EXTRA["cuda"], "dev": dev, "gaudi": gaudi}
    for part, pins in locks.items():
        write(HERE / f"{part}.lock", ["# Written by `make lock`.", *pins])
    root = HERE.parent
    lines = conda("feedrate", "The driver's environment", run, package="-e .")
    write(root / "environment.yml", lines)
    for kind, what in JOBS.items():
        pins = direct("run", run) + EXTRA.get(kind, [])
        write(root / f"envs/{kind}.yaml", conda(f"feedrate-{kind}", what, pins))
    write_loaders(root, direct("run", run))
    pins = [pin for pin in direct("gaudi", gaudi) if pin.split("==")[0] not in NEED_TORCH]
    what = "The supervisor of jobs on Gaudi, whose processes run in the vendor's interpreter"
    lines = conda("feedrate-gaudi", what, pins, lock="gaudi")
    write(root / "envs/gaudi.yaml", lines)


def write_loaders(root: Path, pins: list[str]) -> None:
    """An environment for each loader library: training on the CPU, with the pins of its lock, and
    with the packages of conda that a line of it names."""
    for lock in sorted((root / LOADERS / "requirements").glob("*.lock")):
        text = lock.read_text()
        own = [line for line in text.splitlines() if "==" in line]
        what = f"Training on the CPU with loader.library: {lock.stem}"
        build = [name for line in re.findall("^# conda: (.+)", text, re.M) for name in line.split()]
        lines = conda(f"feedrate-{lock.stem}", what, pins + own, build=build)
        write(root / LOADERS / f"envs/{lock.stem}.yaml", lines)


@contextmanager
def fresh_environment() -> Iterator[list[str]]:
    """The pip command of an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        yield [str(Path(folder) / "bin/pip"), "--quiet", "--disable-pip-version-check"]


def resolve(pip: list[str], part: str) -> list[str]:
    """Install an .in file, torch before the rest; return all installed packages with versions."""
    if torch := [line for line in names(part) if line.startswith("torch==")]:
        install(pip, *torch)
    install(pip, "-r", str(HERE / f"{part}.in"))
    return freeze(pip)


def direct(part: str, pins: list[str]) -> list[str]:
    """The members of `pins` that the .in file names."""
    wanted = {canonical(re.split(r"[=<>]", name)[0]) for name in names(part)}
    return [pin for pin in pins if canonical(pin.split("==")[0]) in wanted]


def canonical(name: str) -> str:
    """A package's name in its canonical spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(part: str) -> list[str]:
    """The requirements of an .in file."""
    lines = (HERE / f"{part}.in").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def install(pip: list[str], *what: str) -> None:
    """Install into the fresh environment."""
    subprocess.run([*pip, "install", *what], check=True)


def freeze(pip: list[str]) -> list[str]:
    """All installed packages with versions, without local build labels such as torch's +cpu."""
    command = [*pip, "freeze", "--all", "--exclude", "pip"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [re.sub(r"\+\w+$", "", line) for line in lines.splitlines() if "==" in line]


def conda(
    name: str,
    what: str,
    pins: list[str],
    package: str = "",
    lock: str = "run",
    build: Sequence[str] = (),
) -> list[str]:
    """The lines of a conda environment file; it installs the same pins with pip."""
    return [
        f"# {what}. Written by `make lock`; the pins are those of requirements/{lock}.lock.",
        f"name: {name}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - python={PYTHON}",
        *(f"  - {name}" for name in build),
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
