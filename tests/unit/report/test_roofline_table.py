"""The table of rates that FLOPs and bytes predict, beside what was measured."""

import pytest
from report_samples import make_project, table, write_results

from feedrate.config.errors import ConfigError
from feedrate.report import text
from feedrate.report.rows import Inputs
from feedrate.results.columns import CELLS
from feedrate.results.files import read_csv


def test_predictions_stand_next_to_what_was_measured(tmp_path):
    project = make_project(("cpu", "gaudi2"))
    files = write_results(tmp_path, project)
    page = table(project, Inputs(files), "roofline")
    assert "no prediction<small>no peak is registered" in page.replace("</span>", "")
    rows = {row["cell"]: row for row in read_csv(files[1], CELLS) if row["device"] == "gaudi2"}
    ratio = rows["workers=2~decode=host"]["samples_per_s"] / 500
    assert f"<td>{text.share(ratio)}</td>" in page
    assert page.count("A sample of bridgetower-large, 128 tokens") == 1, "once for all its cells"
    by_part = page.split("A sample of")[1]
    for name, gflops, share in (
        ("text encoder", "100.0", "25%"),
        ("image encoder", "300.0", "75%"),
        ("Forward pass", "400.0", "100%"),
        ("Training", "1,200", "300%"),
    ):
        assert f"{name}</th><td>{gflops}</td><td>{share}</td>" in by_part


def test_a_broken_prediction_is_one_sentence(tmp_path):
    project = make_project()
    files = write_results(tmp_path, project)
    (broken,) = (file for file in files if file.name == "predicted.json")
    broken.write_text('[{"device": 1}]')
    with pytest.raises(ConfigError, match=r"predicted\.json"):
        table(project, Inputs(files), "roofline")
