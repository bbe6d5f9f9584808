"""The self-test: what it runs for a device, what it writes, and a run of it on two processes."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args
from zipfile import ZipFile

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
from feedrate.results.selftest import Line
from selftest_parts import QUICK, run_selftest, some_parts
from tiny_spec import tiny_spec

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
    project = testing.plan_project(device, DEVICES[device], PARTS, "generated")
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


def test_sharding_runs_on_all_cards_and_optimizers_on_one():
    found = asked("h100")
    assert {"fsdp", "fsdp-bf16", "ddp", "decode-device", "fp8"} <= found[8]
    assert {"fp8", "fused-adam", "offload", "slow-loader", "slow-model"} <= found[1]
    assert not {"fused-adam", "slow-loader"} & found[8]


def test_only_the_stopwatch_runs_longer():
    spec = tiny_spec(levels={"part": "stopwatch"}, protocol={"steps": 8, "warmup_steps": 2})
    assert testing.long_enough(spec, 0.01).protocol.steps == 2 + 400
    assert testing.long_enough(spec, 0.0) == spec
    assert testing.long_enough(spec, 60).protocol.steps == 8
    other = msgspec.structs.replace(spec, levels={"part": "bf16"})
    assert testing.long_enough(other, 0.01) == other


WRITER = """
import sys, time
from pathlib import Path
from feedrate.jobs.events import EventLog, Step, Window
folder = Path(sys.argv[1]) / "attempt-a"
folder.mkdir(parents=True)
log = EventLog(folder, 0)
for step in (1, 2, 3):
    log.write(Step(rank=0, step=step, step_s=0.2))
    time.sleep(0.2)
log.write(Window(rank=0, first_step=3, last_step=3, steps=1, samples=8, wall_s=99.0))
time.sleep(0.2)
"""


def test_the_stopwatch_goes_by_what_is_seen_of_the_process(tmp_path):
    job = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    found_s = testing.time_window(job, tmp_path, warmup_steps=2)
    assert 0.4 <= found_s + testing.LOOK_S * 2 < 99, "not what the process says of itself"
    assert testing.time_window(job, tmp_path, warmup_steps=2) is None


SECRET = "hf_abcdefghijklmnopqrstuvwxyz"
OTHERS = ("AKIAABCDEFGHIJKLMNOP", "ghp_abcdefghijklmnopqrstuv", "hunter2hunter2")


def test_the_archive_has_all_logs_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a-token-of-mine-without-a-pattern")
    out = tmp_path / "selftest.txt"
    run = tmp_path / "runs/rep1"
    run.mkdir(parents=True)
    out.write_text("page")
    out.with_suffix(".json").write_text(json.dumps({"token": SECRET}))
    (run / "train.log").write_text(
        f"https://me:{OTHERS[2]}@example.org/simple Bearer {SECRET} {OTHERS[0]} {OTHERS[1]} "
        "a-token-of-mine-without-a-pattern end"
    )
    (run / "model.safetensors").write_bytes(b"weights")
    testing.write_archive(out)
    with ZipFile(out.with_suffix(".zip")) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {"selftest.txt", "selftest.json", "runs/rep1/train.log"}
    whole = "".join(texts.values())
    assert texts["runs/rep1/train.log"].endswith(" end")
    for secret in (SECRET, *OTHERS, "a-token-of-mine"):
        assert secret not in whole


def test_the_page_begins_with_what_failed():
    lines = [Line("passed", "a", "x"), Line("not claimed", "b", "x"), Line("failed", "c", "x")]
    found = [Finding("will fail", "disk", "it is full", "make room")]
    rows = testing.page("cpu on here", lines, found).splitlines()
    assert rows[1] == "1 failed, 0 unknown, 1 passed, 1 not claimed"
    assert [row.split()[0] for row in rows[3:6]] == ["failed", "passed", "not"]
    assert rows[-1].split() == ["will", "fail", "disk:", "it", "is", "full", "(make", "room)"]


@pytest.mark.parametrize(("outcome", "code"), [("failed", 1), ("unknown", 0), ("passed", 0)])
def test_the_command_fails_if_something_failed(tmp_path, monkeypatch, outcome, code, capsys):
    file = tmp_path / "selftest.txt"
    file.write_text("the page\n")
    lines = [msgspec.to_builtins(Line(outcome, "a", "x"))]
    file.with_suffix(".json").write_text(json.dumps({"lines": lines}))
    monkeypatch.setattr(testing, "measure_again", lambda *_: (0, [file]))
    assert testing.selftest(argparse.Namespace(), []) == code
    assert "the page" in capsys.readouterr().out


@pytest.mark.usefixtures("own_lock")
def test_two_processes_show_what_they_can_do(labelled, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", warm.python())
    software = msgspec.structs.replace(DEVICES["cpu-x2"].software, python=warm.python())
    entry = msgspec.structs.replace(DEVICES["cpu-x2"], software=software)
    levels = "baseline", "decode-cache", "fp8", "ddp", "fsdp"
    parts = some_parts(tmp_path, *levels, **QUICK)
    found = run_selftest("cpu-x2", entry, parts, labelled, tmp_path)
    outcomes = {subject: line["outcome"] for subject, line in found.items()}
    text = "\n".join(f"{line['outcome']} {name}: {line['text']}" for name, line in found.items())
    for card in ("card 0", "card 1"):
        assert outcomes.pop(f"{card}: matrix product in fp32") == "unknown", text
        assert outcomes.pop(f"{card}: memory figures") == "passed", text
    assert outcomes.pop("energy") in ("unknown", "passed"), text
    assert outcomes == {
        "one card: baseline": "passed",
        "one card: baseline: pixels": "passed",
        "one card: decode-cache": "passed",
        "one card: decode-cache: pixels": "passed",
        "fp8": "not claimed",
        "all cards: ddp": "passed",
        "all cards: ddp: weights": "passed",
        "all cards: fsdp": "passed",
    }, text


@pytest.mark.usefixtures("own_lock")
def test_what_does_not_run_fails_its_line_only(labelled, tmp_path, monkeypatch):
    """The registry claims fp16 of a CPU, which the kind refuses; and time runs out after it."""
    monkeypatch.chdir(ROOT)
    software = msgspec.structs.replace(DEVICES["cpu"].software, python=warm.python())
    changes = {"capabilities": ["fp16", "half"], "software": software}
    entry = msgspec.structs.replace(DEVICES["cpu"], **changes)
    parts = some_parts(tmp_path, "baseline", "fp16", "half")
    run = testing.SelfTest._run

    def run_until_the_deadline(self, spec, limit_s):
        answer = run(self, spec, limit_s)
        self._deadline_s = time.monotonic()
        return answer

    monkeypatch.setattr(testing.SelfTest, "_run", run_until_the_deadline)
    monkeypatch.setattr(testing, "run_ranks", lambda *_: fail_to_start())
    found = run_selftest("cpu-x2", entry, parts, labelled, tmp_path)
    assert found["physics"]["outcome"] == "failed"
    assert "no device" in found["physics"]["text"]
    assert found["one card: fp16"]["outcome"] == "failed"
    assert "fp16" in found["one card: fp16"]["text"]
    assert found["one card: half"]["outcome"] == "unknown"
    assert found["all cards"]["outcome"] == "not claimed"


def test_what_is_bound_to_fail_is_not_started(labelled, tmp_path, monkeypatch):
    """On a machine without the device, no rank and no part starts; a part may fail by itself."""
    monkeypatch.chdir(ROOT)
    found = [Finding("will fail", "h100: GPUs", "here are none", "run it where the device is")]
    part = Finding("will fail", "h100: torchao", "it is missing", "install it", ["selftest"])
    monkeypatch.setattr(testing, "examine", lambda *_: [part, *found])
    monkeypatch.setattr(testing.SelfTest, "lines", lambda _: iter([Line("passed", "a", "x")]))
    parts = some_parts(tmp_path, "baseline")
    said = r"^nothing was started: h100: GPUs: here are none: run it where the device is$"
    with pytest.raises(DeviceError, match=said):
        run_selftest("h100", DEVICES["h100"], parts, labelled, tmp_path / "first")
    found.clear()
    assert set(run_selftest("h100", DEVICES["h100"], parts, labelled, tmp_path)) == {"a"}


def fail_to_start() -> None:
    raise testing.ExpectedError("there is no device")
