"""One file adds a device kind, a launcher, a decoder or a model: it is planned, launched, run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from feedrate.core import plugins
from feedrate.core.paths import SPEC_NAME
from feedrate.devices import launch
from feedrate.devices.base import refusals
from feedrate.devices.host import look
from tiny_spec import tiny_spec

ROOT = Path(__file__).resolve().parents[3]

KIND = '''
"""Beads, which compute on the CPU."""

from feedrate.devices.base import Card
from feedrate.devices.kinds import cpu

ENVIRONMENT = "cpu"
OFFERS = {"train.precision": ("fp32",)}
INSTEAD = {"train.precision": "more beads"}
NOUNS = ("an abacus", "abaci")
PCI_VENDOR = "0xbead"
VISIBLE = "VISIBLE_BEADS"
RECORDED_VARIABLES = ("BEADS_",)


class DeviceAdapter(cpu.DeviceAdapter):
    kind = "abacus"

    @classmethod
    def cards(cls):
        return [Card("Soroban 13")] * 2

    @classmethod
    def visible(cls, cards, wanted):
        return cards[: int(wanted)]

    @classmethod
    def launch_variables(cls, spec, environment):
        return {"BEADS_OF_RANK": str(10 * spec.count)}

    def device_model(self):
        return "Soroban 13"
'''
LAUNCHER = '''
"""One process, told its rank by variables of its own."""

MAX_PROCESSES = 1
RANK_VARIABLES = ("BELL_RANK", "BELL_RANKS", "BELL_LOCAL_RANK", "BELL_LOCAL_RANKS")
SETS = ("BELL_*",)
PROGRAM = "env"


def command(spec, python, module):
    ring = ["env", "BELL_RANK=0", "BELL_RANKS=1", "BELL_LOCAL_RANK=0", "BELL_LOCAL_RANKS=1"]
    return [], [*ring, python, "-m", *module]


def variables(environment):
    return {"BEADS_TUNE": "C"}
'''
DECODER = '''
"""Decodes on the abacus, bead by bead."""

from feedrate.loading.dataset import collate
from feedrate.loading.path import DevicePath

LEVEL = "device"
KINDS = ("abacus",)


class Decoder:
    def __init__(self, dataset):
        self.dataset = dataset

    def batches(self, order):
        for rows in order:
            batch = collate([self.dataset[row] for row in rows])
            yield self.dataset.finish(batch)


def open_path(device, loader):
    return DevicePath(lambda dataset, size: Decoder(dataset).batches, ready_batches=1, timeout_s=60)
'''
MODEL = '''
"""The brightness of a picture, by one weight."""

import torch

from feedrate.models.build import Built
from feedrate.models.build import prepared_tokenizer

SIZES = {"small": 16, "smaller": 8}


class Brightness(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, pixel_values, input_ids, attention_mask, return_loss=True):
        return {"loss": (self.weight * pixel_values.mean((1, 2, 3)) - 1).square().mean()}


def build(settings, loader, prepared):
    return Built(
        model=Brightness(),
        tokenizer=prepared_tokenizer(prepared, 4096, settings.size),
        image_px=SIZES[settings.size],
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        other_outputs=(),
        layers=(),
    )
'''
PACKAGES = {
    "feedrate.devices.kinds": ("abacus", KIND),
    "feedrate.devices.launchers": ("bell", LAUNCHER),
    "feedrate.loading.decoders": ("beads", DECODER),
    "feedrate.models.builders": ("brightness", MODEL),
}
EXTEND = """
import importlib, sys
from pathlib import Path
for package in {packages}:
    importlib.import_module(package).__path__.append(str(Path({folder!r}) / package))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a plug-in for each package, and a start-up file that adds them."""
    root = tmp_path_factory.mktemp("added")
    for package, (name, text) in PACKAGES.items():
        (root / package).mkdir()
        (root / package / f"{name}.py").write_text(text)
    start = EXTEND.format(packages=list(PACKAGES), folder=str(root))
    (root / "sitecustomize.py").write_text(start)
    return root


@pytest.fixture
def added(folder, monkeypatch):
    """The plug-ins in this process and in those that it starts."""
    for package, (name, _) in PACKAGES.items():
        module = sys.modules.get(package) or __import__(package, fromlist=["_"])
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder / package)])
        monkeypatch.setitem(sys.modules, f"{package}.{name}", None)
        monkeypatch.delitem(sys.modules, f"{package}.{name}")
    path = [str(folder), str(ROOT / "workflow"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


def spec_of(**changes):
    """A run on all four."""
    common = {
        "device": "abacus",
        "kind": "abacus",
        "launcher": "bell",
        "model": {"name": "brightness", "size": "small"},
        "loader": {"decode": "device"},
        "protocol": {"steps": 3, "ceiling_s": 0},
    }
    return tiny_spec(**{**common, **changes})


PLAN = """
import json, sys
from pathlib import Path
from feedrate.config.project import load_project
from feedrate.config.plan import make_plan
from feedrate.config.values import read_yaml
root = Path(sys.argv[1])
config = read_yaml(root / "config/config.yaml") | {"studies": ["beads"], "devices": ["beads"]}
(spec,) = make_plan(load_project(root, config)).runs.values()
settings = spec.settings
print(json.dumps([spec.kind, spec.launcher, settings.model.name, "torch" in sys.modules]))
"""
STUDY = {
    "title": "Beads",
    "question": "How many?",
    "source": {"title": "none"},
    "settings": {"model": {"name": "brightness", "size": "small"}},
    "protocol": {"steps": 3, "warmup_steps": 1, "repeats": 1},
    "factors": {"size": {"sets": "model.size", "levels": ["smaller"]}},
    "baseline": {"size": "smaller"},
}


def planned(root: Path, size: str = "smaller") -> subprocess.CompletedProcess[str]:
    """A plan of one study of the new model on the new device."""
    if not (root / "config").exists():
        shutil.copytree(ROOT / "config", root / "config")
        entry = {"label": "Beads", "kind": "abacus", "launcher": "bell", "capabilities": []}
        with (root / "config/devices.yaml").open("a") as stream:
            stream.write("\n" + yaml.safe_dump({"beads": entry}))
    study = STUDY | {"factors": {"size": {"sets": "model.size", "levels": [size]}}}
    study["baseline"] = {"size": size}
    (root / "config/studies/beads.yaml").write_text(yaml.safe_dump(study))
    return subprocess.run(
        [sys.executable, "-c", PLAN, str(root)], capture_output=True, text=True, check=False
    )


def test_a_new_kind_launcher_and_model_are_planned_without_torch(added, tmp_path):
    answer = planned(tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == ["abacus", "bell", "brightness", False]
    wrong = planned(tmp_path, size="huge")
    assert "sizes of brightness: small, smaller" in wrong.stderr


def test_a_new_kind_is_found_refuses_and_names_its_environment(added):
    found = look({"VISIBLE_BEADS": "1"})
    assert (found.kind, found.models) == ("abacus", ["Soroban 13"])
    assert plugins.declared("feedrate.devices.kinds", "ENVIRONMENT")["abacus"] == "cpu"
    (sentence,) = refusals(spec_of(train={"precision": "bf16"}))
    assert sentence.endswith("use more beads")


def test_a_new_launcher_tells_a_process_its_rank(added):
    told = {"BELL_RANK": "5", "BELL_RANKS": "8", "BELL_LOCAL_RANK": "1", "BELL_LOCAL_RANKS": "4"}
    assert launch.rank_from_environment(told) == (5, 8, 1, 4)
    made = launch.launch_environment(spec_of(), told)
    assert not set(told) & set(made), "a job inside another must not inherit its rank"
    assert (made["BEADS_TUNE"], made["BEADS_OF_RANK"]) == ("C", "10")


def test_a_job_runs_on_all_of_them(added, tmp_path, tiny_prepared):
    run = tmp_path / "run"
    run.mkdir()
    (run / SPEC_NAME).write_text(json.dumps(msgspec.to_builtins(spec_of())))
    module = ["feedrate", "worker", "--run", str(run), "--data", str(tiny_prepared)]
    made = launch.prepare(spec_of(), module, [run], os.environ)
    ended = subprocess.run(
        made.command, env=made.environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    events = {event["event"]: event for event in lines}
    assert events["start"]["device_model"] == "Soroban 13"
    assert events["start"]["environment"]["BEADS_OF_RANK"] == "10"
    assert (events["model"]["parameters"], events["model"]["flops_per_sample"]) == (1, 0.0)
    assert events["data"]["decode"] == "device"
    assert events["window"]["steps"] == 2
