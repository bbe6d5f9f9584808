"""The page of the sources: docs/sources.md, and with the outcomes of a run."""

from pathlib import Path

import pytest

from feedrate.config.statements import Document, Statement, read_documents
from feedrate.report.rows import Inputs
from feedrate.report.sources import markdown, outcomes, render, status
from feedrate.results.columns import CELLS, CLAIMS
from feedrate.results.tables import write_csv

ROOT = Path(__file__).resolve().parents[3]


def row(**changes):
    common = {
        "section": "A table",
        "says": "<b> is | 2",
        "here": ["study:post"],
        "status": "device",
    }
    return Statement(**{**common, "command": "make run", "needs": ["h100"], **changes})


def claim(name, verdict, study="post"):
    return {"study": study, "claim": name, "statement": "x", "of": "source", "verdict": verdict}


def cell(name, status="ok", device="cpu", study="post"):
    return {"study": study, "device": device, "cell": name, "status": status}


@pytest.fixture
def found(tmp_path):
    """The outcomes of a run of one study."""
    files = [tmp_path / "claims.csv", tmp_path / "cells.csv"]
    rows = [claim("faster", "holds"), claim("faster", "refuted"), claim("smaller", "no data here")]
    write_csv(files[0], CLAIMS, [*rows, claim("faster", "holds", "other")])
    rows = [cell("workers=0~decode=host"), cell("workers=2~decode=host", "failed", "h100")]
    write_csv(files[1], CELLS, [*rows, cell("workers=1", study="other")])
    return outcomes(Inputs(files), ["post"])


@pytest.mark.parametrize(
    ("here", "told"),
    [
        (["claim:post/faster"], "measured here: holds, refuted"),
        (["claim:post/f*", "study:post"], "measured here: holds, refuted"),
        (["claim:post/smaller"], "runs on any machine"),
        (["claim:other/faster"], "runs on any machine"),
        (["level:post/workers=0"], "measured on cpu"),
        (["level:post/workers=2"], "runs on any machine"),
        (["level:post/workers=2", "study:post"], "measured on cpu"),
        (["study:other"], "runs on any machine"),
    ],
)
def test_a_status_is_what_the_run_measured_or_what_is_needed(found, here, told):
    assert status(row(here=here, status="cpu", needs=[]), found)[0] == told


@pytest.mark.parametrize(
    ("needs", "told"),
    [(["h100"], "ready"), (["cpu"], "measured on cpu"), (["h100", "cpu"], "measured on cpu")],
)
def test_only_cells_of_the_devices_that_a_statement_needs_count(found, needs, told):
    assert status(row(needs=needs), found)[0] == told


def test_a_part_of_a_device_counts_as_it():
    several = {"study:post": ["h100-x1", "cpu-x2"]}
    assert status(row(), several)[0] == "measured on h100-x1"


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"needs": ["h100", "gaudi2"]}, "needs h100, gaudi2"),
        ({"status": "audited"}, "to measure it, needs h100"),
        ({"status": "cpu", "needs": [], "why": "Small."}, "Small."),
        ({"why": "Slow."}, "needs h100. Slow."),
    ],
)
def test_a_remark_says_what_is_needed_and_why(changes, remark):
    assert status(row(**changes), {})[1] == remark


def test_texts_of_a_source_are_escaped():
    documents = {"post": Document(title="A & B", address="https://example.org/", rows=[row()])}
    assert "&lt;b&gt; is | 2" in render(documents, {})
    assert "A &amp; B" in render(documents, {})
    table = [line for line in markdown(documents).splitlines() if line.startswith("| &lt;b&gt;")]
    assert [line.replace("\\|", "").count("|") for line in table] == [5]


def test_both_pages_have_every_statement():
    documents = read_documents(ROOT)
    rows = [one for document in documents.values() for one in document.rows]
    lines = [line for line in markdown(documents).splitlines() if line.startswith("| ")]
    assert len([line for line in lines if not line.startswith("| What it says")]) == len(rows)
    assert render(documents, {}).count('<th scope="row">') == len(rows)
