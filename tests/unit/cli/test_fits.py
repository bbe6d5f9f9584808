"""`feedrate fits`: which cells are counted, and what it writes. The counts: tests/unit/models."""

import csv
import shutil
from pathlib import Path

import pytest

from feedrate import __main__ as entry
from feedrate.models import memory

ROOT = Path(__file__).resolve().parents[3]
NEEDS = memory.Needs(
    parameters=10,
    weights_gib=1.0,
    gradients_gib=1.0,
    states_gib=2.0,
    activations_gib=3.0,
    peak_gib=7.0,
    memory_gib=None,
    left_gib=None,
    verdict="unknown",
    largest_batch=None,
)


@pytest.fixture
def counted(monkeypatch):
    """What is asked for, each answered with NEEDS."""
    asked = []

    def needs(settings, device):
        asked.append((settings, device))
        return NEEDS

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(memory, "needs", needs)
    return asked


def test_each_need_of_a_published_cell_is_counted_once(counted, tmp_path):
    file = tmp_path / "fits.csv"
    assert entry.main(["fits", "--study", "flava-scaling", "--csv", str(file)]) == 0
    rows = list(csv.DictReader(file.open()))
    with (ROOT / "config/published/flava-scaling.csv").open() as published:
        cells = {row["levels"] for row in csv.DictReader(published)}
    assert len(rows) == len(counted) == len(cells)
    assert {row["device"] for row in rows} == {"a100-40gb"}
    assert float(rows[0]["peak_gib"]) == NEEDS.peak_gib
    assert rows[0]["largest_batch"] == ""


def test_the_published_batch_and_number_of_devices_count(counted):
    assert entry.main(["fits", "--study", "bridgetower-dataloading"]) == 0
    found = {(s.train.batch_size, d.count) for s, d in counted if d.label == "Gaudi2"}
    assert found == {(48, 8), (40, 8), (40, 1)}


def test_with_a_device_all_its_cells_are_counted(counted, capsys):
    assert entry.main(["fits", "--study", "flava-scaling", "--device", "cpu-x2"]) == 0
    assert {s.model.size for s, _ in counted} == {"tiny"}
    assert len({s.train.strategy for s, _ in counted}) == 2
    assert "unknown" in capsys.readouterr().out


def test_the_checkpoint_of_the_configuration_is_left_out(counted, tmp_path, monkeypatch):
    for part in ("Snakefile", "profiles"):
        (tmp_path / part).symlink_to(ROOT / part)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    file = tmp_path / "config/config.yaml"
    text = file.read_text().replace("checkpoint: null", "checkpoint: of/mine")
    file.write_text(text.replace("checkpoint_revision: null", "checkpoint_revision: main"))
    monkeypatch.chdir(tmp_path)
    assert entry.main(["fits", "--study", "flava-scaling"]) == 0
    assert {settings.model.checkpoint for settings, _ in counted} == {None}


def test_a_study_without_published_training_needs_a_device(counted, capsys):
    assert entry.main(["fits", "--study", "bridgetower-inference"]) == 2
    assert "--device" in capsys.readouterr().err
    assert counted == []
