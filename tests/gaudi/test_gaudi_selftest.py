"""The self-test on the stand-in: the vendor's library runs what the registry claims."""

import sys

import msgspec
import pytest
from gaudi_software import ROOT, in_warm_processes, make_spec

import warm
from feedrate.cli import selftest
from feedrate.config.devices import Peak
from feedrate.config.project import Devices
from feedrate.config.values import load
from selftest_parts import QUICK, run_selftest, some_parts

ENTRY = load(ROOT / "config/devices.yaml", Devices, "devices")["gaudi2"]
PARTS = ("baseline", "bf16", "flash")
"""Compilation and the fused optimizer are in test_gaudi_training.py, decoding on the device in
test_gaudi_decoding.py."""


@pytest.fixture
def found(prepared, tmp_path, monkeypatch):
    """The lines of one stand-in, whose registered peaks are a planted fault."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", warm.python())
    monkeypatch.setattr(selftest, "examine", lambda *_: [])  # it would find no card
    spec = in_warm_processes(make_spec())
    entry = msgspec.structs.replace(
        ENTRY,
        count=1,
        launcher="single",
        software=spec.software,
        peaks=[Peak(precision="bf16", datasheet_tflops=432, source="of a real one")],
    )
    return run_selftest(
        "gaudi2-x1", entry, some_parts(tmp_path, *PARTS, **QUICK), prepared, tmp_path
    )


def test_parts_run_and_what_is_no_gaudi_is_found(found):
    text = "\n".join(f"{line['outcome']} {name}: {line['text']}" for name, line in found.items())
    outcomes = {name: line["outcome"] for name, line in found.items()}
    assert outcomes.pop("card 0: matrix product in bf16") == "failed", "a CPU is no Gaudi"
    assert outcomes.pop("energy") == "unknown", text
    assert outcomes == {
        "one card: baseline": "passed",
        "one card: baseline: pixels": "passed",
        "one card: bf16": "passed",
        "flash": "not claimed",
        "all cards": "not claimed",
    }, text
