"""A copy of the project with a small study, run as a user runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import warm
from feedrate.flow import graph, identity

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "config", "workflow", "profiles", "report", "envs")

MINI = {
    "title": "A small study",
    "question": "Does the workflow work?",
    "source": {"title": "none"},
    "settings": {
        "model": {"name": "bridgetower", "size": "tiny"},
        "loader": {"max_tokens": 6},  # shorter than captions: FLOPs are counted once
        "train": {"batch_size": 2, "precision": "fp32"},
    },
    "protocol": {"steps": 4, "warmup_steps": 2, "repeats": 1, "ceiling_s": 0},
    "factors": {
        "workers": {"sets": "loader.workers", "levels": [0, 1]},
        "decode": {
            "sets": "loader.decode",
            "levels": ["host", "device"],
            "requires": {"device": "decode_device"},
        },
    },
    "baseline": {"workers": 0, "decode": "host"},
}
DATA = {"source": "generated", "train": 48, "validation": 8, "test": 8}
MANIFESTS = """
import sys
from pathlib import Path
from feedrate.flow import configuration
from feedrate.flow.graph import Graph
graph = Graph(configuration.load(Path(), configuration.read_layers([])), Path())
print(*map(graph.data.manifest, sys.argv[1:]))
"""


@dataclass
class Project:
    """A project folder, the commands that a user types in it, and the Python that runs them."""

    root: Path
    python: str = field(default_factory=warm.python)
    cold: str | None = None
    """A regular expression: warm programs whose command lines match are new interpreters after all,
    with all below them."""

    def env(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("FEEDRATE_")}
        env |= {"COLD": self.cold} if self.cold is not None else {}
        return env | {
            "PYTHONPATH": str(self.root / "workflow"),
            # The environment's own programs are not on the path: nobody has to activate it.
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.root / "home"),
        }

    def warmed(self) -> "Project":
        """The same folder with warm processes."""
        return Project(self.root)

    def popen(self, *command: str, **options: object) -> subprocess.Popen:
        """Start `python -m COMMAND` in the project's root, stdout and stderr together."""
        return subprocess.Popen(
            [self.python, "-m", *command],
            cwd=self.root,
            env=self.env(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        )

    def call(self, *command: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        """Run `python -m COMMAND` to its end."""
        process = self.popen(*command)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"{command} took more than {timeout} s:\n{output}") from late
        return subprocess.CompletedProcess(command, process.returncode, output)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.call("feedrate", "run", *arguments)

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs that the next call would run, by rule."""
        done = self.call("snakemake", "--profile", "profiles/local", "-n", *arguments)
        assert done.returncode == 0, done.stdout
        table = re.findall(r"^(\w[\w-]*) +(\d+)$", done.stdout, flags=re.M)
        return {rule: int(count) for rule, count in table if rule != "total"}

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{old!r} is not in {path}"
        file.write_text(text.replace(old, new, 1))

    def study(self, **changes: object) -> None:
        """Write the small study with some keys changed."""
        path = self.root / "config/studies/mini.yaml"
        path.write_text(yaml.safe_dump(MINI | changes, sort_keys=False))

    def config(self, **changes: object) -> None:
        """Change keys of config.yaml."""
        path = self.root / "config/config.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes, sort_keys=False))

    def device(self, name: str, **changes: object) -> None:
        """Change keys of an entry of devices.yaml; None takes the key's default."""
        path = self.root / "config/devices.yaml"
        entries = yaml.safe_load(path.read_text())
        entry = entries.setdefault(name, {}) | changes
        entries[name] = {key: value for key, value in entry.items() if value is not None}
        path.write_text(yaml.safe_dump(entries, sort_keys=False))

    def record(self, cell: str, device: str = "cpu") -> dict:
        """The record of the first repeat of a cell."""
        lines = (self.root / f"results/mini/{device}/records.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return next(record for record in records if record["cell"] == cell)

    def manifests(self, *datasets: str) -> list[str]:
        """The files that are there once these datasets are prepared."""
        done = subprocess.run(
            [sys.executable, "-c", MANIFESTS, *datasets],
            cwd=self.root,
            env=self.env(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()


def make_project(root: Path, *, cold: bool = False) -> Project:
    """Copy the project's own files and select the small study.

    Its processes are warm and find the code digested; `cold`: each is a new interpreter, and the
    first plan digests the code, as for a user.
    """
    root.mkdir(exist_ok=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, root / part)
        else:
            shutil.copy(source, root / part)
    for link in ROOT.iterdir():
        if link.is_symlink():  # the profiles' names, as typed
            (root / link.name).symlink_to(link.readlink())
    (root / "home").mkdir()
    project = Project(root, sys.executable) if cold else Project(root)
    project.study()
    datasets = yaml.safe_load((root / "config/config.yaml").read_text())["datasets"]
    project.config(studies=["mini"], dataset="small", datasets=datasets | {"small": DATA})
    return project if cold else know_code(project)


HELD = ROOT / "tests/workflow/held_worker.py"
UNTRAINED = f'shift 2; exec {{python}} {HELD} untrained "$@"'


def interpreter(root: Path, name: str, start: str, python: str) -> Path:
    """An interpreter that logs every start of training processes, and starts them by `start`, words
    of a shell instead of an interpreter's `-m MODULE …`."""
    path = root / f"python-{name}"
    start = start.replace("{python}", python)
    path.write_text(
        '#!/bin/sh\ncase "$*" in "-m feedrate worker"*)\n'
        f'echo "$*" >> {root}/trainings\n{start};;\nesac\nexec {python} "$@"\n'
    )
    path.chmod(0o755)
    return path


def know_code(project: Project) -> Project:
    """Keep the digests of a project's modules for its first plan, which takes a second less. A copy
    of a project has to do it again: they are kept by path."""
    cache = identity.DigestCache(project.root / graph.DIGESTS)
    for file in (project.root / "workflow/feedrate").resolve().rglob("*.py"):
        cache.of_file(file, identity.digest_module)
    cache.save()
    return project
