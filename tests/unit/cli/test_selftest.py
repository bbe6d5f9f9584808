"""The self-test: what it runs for a device, what it writes, and a run of it on two processes."""

import argparse
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest

import warm
from feedrate.cli import selftest as testing
from feedrate.config.devices import Capability
from feedrate.config.plan import make_plan
from feedrate.config.project import Devices
from feedrate.config.study import Study
from feedrate.config.values import load
from feedrate.devices.base import DeviceError
from feedrate.devices.doctor import Finding
from selftest_parts import QUICK, run_selftest, some_parts

ROOT = Path(__file__).resolve().parents[3]
PARTS = ROOT / "config/selftest.yaml"
DEVICES = load(ROOT / "config/devices.yaml", Devices, "devices")
STUDY = load(PARTS, Study, "parts")
NO_PART = {"large_models", "one_device"}
"""They say how fast a device is and how large its jobs are, not that it can do something."""


def test_every_capability_has_a_part():
    shown = set(STUDY.factors["part"].requires.values())
    assert shown == set(get_args(Capability)) - NO_PART


def asked(device: str) -> dict[int, set[str]]:
    """The parts that run on one card and on all cards of a device."""
    project = testing.plan_project(device, DEVICES[device], PARTS)
    found: dict[int, set[str]] = {}
    for spec in make_plan(project).runs.values():
        if testing.is_shown(spec):
            found.setdefault(spec.count, set()).add(str(spec.levels["part"]))
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_registry_claims_is_shown_on_one_card_or_on_all(device):
    entry, found = DEVICES[device], asked(device)
    requires = STUDY.factors["part"].requires
    wanted = {part for part, need in requires.items() if need in entry.able}
    wanted -= {"ddp", "fast-ddp"} if entry.count == 1 else set()
    wanted -= set() if "bf16" in entry.able else {"fsdp-bf16"}
    assert {part for parts in found.values() for part in parts if part in requires} == wanted
    assert set(found) == {1, entry.count}


@pytest.mark.parametrize(("outcome", "code"), [("failed", 1), ("unknown", 0), ("passed", 0)])
def test_the_command_fails_if_something_failed(tmp_path, monkeypatch, outcome, code, capsys):
    monkeypatch.chdir(tmp_path)
    called = []

    def run_snakemake(_, *words):
        file = Path("results/selftest/cpu-x2/selftest.txt")
        file.parent.mkdir(parents=True)
        file.write_text(f"the page\n{outcome}  a: not failed\n")
        called.extend(words)
        return 0

    monkeypatch.setattr(testing, "run_snakemake", run_snakemake)
    monkeypatch.setattr(testing, "check_call", lambda *_: None)
    config = SimpleNamespace(devices=["cpu-x2", "never-made"])
    monkeypatch.setattr(testing, "load_project", lambda _: SimpleNamespace(config=config))
    options = argparse.Namespace(minutes=2.5, part=["bf16", "fp8"], config=[])
    assert testing.selftest(options, ["--retries", "2"]) == code
    assert options.config == ["selftest_minutes=2.5", "selftest_parts=[bf16, fp8]"]
    assert "the page" in capsys.readouterr().out
    rules = ["selftest_cpu_x2", "selftest_never_made"]
    assert called == ["selftest", "--forcerun", *rules, "--retries", "2"]


def test_two_processes_show_what_they_can_do(labelled, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", warm.python())
    software = msgspec.structs.replace(DEVICES["cpu-x2"].software, python=warm.python())
    entry = msgspec.structs.replace(DEVICES["cpu-x2"], software=software)
    levels = "baseline", "fp8", "fsdp"
    parts = some_parts(tmp_path, *levels, **QUICK)
    found = run_selftest("cpu-x2", entry, parts, labelled, tmp_path)
    outcomes = {subject: line["outcome"] for subject, line in found.items()}
    text = "\n".join(f"{line['outcome']} {name}: {line['text']}" for name, line in found.items())
    for card in ("card 0", "card 1"):
        assert outcomes.pop(f"{card}: matrix product in fp32") == "unknown", text
    assert outcomes.pop("energy") in ("unknown", "passed"), text
    assert outcomes == {
        "one card: baseline": "passed",
        "one card: baseline: pixels": "passed",
        "fp8": "not claimed",
        "all cards: fsdp": "passed",
    }, text


def test_what_does_not_run_fails_its_line_only(labelled, tmp_path, monkeypatch):
    """The registry claims fp16 of a CPU, which the kind refuses; and time runs out after it. The
    page of what has ended is there before the last part."""
    monkeypatch.chdir(ROOT)
    software = msgspec.structs.replace(DEVICES["cpu"].software, python=warm.python())
    changes = {"capabilities": ["fp16", "half"], "software": software}
    entry = msgspec.structs.replace(DEVICES["cpu"], **changes)
    parts = some_parts(tmp_path, "baseline", "fp16", "half")
    run, clock_s, pages = testing.run_part, time.monotonic, []

    def run_until_the_deadline(*words):
        record = run(*words)
        pages.append((tmp_path / "out/selftest.txt").read_text())
        monkeypatch.setattr(testing.time, "monotonic", lambda: clock_s() + 60 * 9.5)
        return record

    monkeypatch.setattr(testing, "run_part", run_until_the_deadline)
    monkeypatch.setattr(testing, "run_ranks", lambda *_: fail_to_start())
    found = run_selftest("cpu-x2", entry, parts, labelled, tmp_path)
    assert found["physics"]["outcome"] == "failed"
    assert "no device" in found["physics"]["text"]
    assert found["one card: fp16"]["outcome"] == "failed"
    assert "fp16" in found["one card: fp16"]["text"]
    assert found["one card: half"]["outcome"] == "unknown"
    assert "not run within 9.5 minutes" in found["one card: half"]["text"]
    (page,) = pages
    assert "failed      physics" in page
    assert "unknown     one card: fp16: not run" in page
    assert found["all cards"]["outcome"] == "not claimed"


def test_what_is_bound_to_fail_is_not_started(labelled, tmp_path, monkeypatch):
    """On a machine without the device, no rank and no part starts; a part may fail by itself."""
    monkeypatch.chdir(ROOT)
    found = [Finding("will fail", "h100: GPUs", "here are none", "run it where the device is")]
    part = Finding("will fail", "h100: torchao", "it is missing", "install it", ["selftest"])
    monkeypatch.setattr(testing, "examine", lambda *_: [part, *found])
    for name in ("physics", "part_lines"):  # what stands for them yields a line
        monkeypatch.setattr(testing, name, lambda *_: iter([testing.Line("passed", "a", "x")]))
    parts = some_parts(tmp_path, "baseline")
    said = r"^nothing was started: h100: GPUs: here are none: run it where the device is$"
    with pytest.raises(DeviceError, match=said):
        run_selftest("h100", DEVICES["h100"], parts, labelled, tmp_path / "first")
    found.clear()
    assert run_selftest("h100", DEVICES["h100"], parts, labelled, tmp_path)["a"]


def fail_to_start() -> None:
    raise testing.ExpectedError("there is no device")
