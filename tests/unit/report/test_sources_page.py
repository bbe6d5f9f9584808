"""The page of the sources: docs/sources.md, and with the outcomes of a run."""

from pathlib import Path

import pytest

from feedrate.config.statements import Document, Statement, read_documents
from feedrate.report.rows import Inputs
from feedrate.report.sources import markdown, outcomes, render, status
from feedrate.results.columns import CELLS, CLAIMS
from feedrate.results.files import write_csv

ROOT = Path(__file__).resolve().parents[3]


def row(**changes):
    common = {
        "section": "A table",
        "says": "<b> is | 2",
        "here": ["study:post"],
        "status": "device",
    }
    return Statement(**{**common, "command": "make run", "needs": ["h100"], **changes})


def claim(name, verdict, study="post", device="cpu"):
    told = {"study": study, "claim": name, "device": device, "verdict": verdict}
    return {**told, "statement": "x", "of": "source"}


def cell(name, status="ok", device="cpu", study="post"):
    return {"study": study, "device": device, "cell": name, "status": status}


@pytest.fixture
def found(tmp_path):
    """The outcomes of a run of one study."""
    files = [tmp_path / "claims.csv", tmp_path / "cells.csv"]
    rows = [claim("faster", "holds"), claim("faster", "refuted"), claim("smaller", "no data here")]
    rows += [claim("across", "holds", device="gaudi2;h100-x1"), claim("faster", "holds", "other")]
    write_csv(files[0], CLAIMS, rows)
    rows = [cell("workers=0~decode=host"), cell("workers=2~decode=host", "failed", "h100")]
    rows += [cell("workers=0~decode=device", "unsupported"), cell("workers=1", study="other")]
    write_csv(files[1], CELLS, rows)
    return outcomes(Inputs(files), ["post"])


@pytest.mark.parametrize(
    ("here", "told"),
    [
        (["claim:post/faster"], "measured on cpu: holds, refuted"),
        (["claim:post/faster", "level:post/workers=0"], "measured on cpu: holds, refuted"),
        (["claim:post/smaller"], "runs on any machine"),
        (["claim:other/faster"], "runs on any machine"),
        (["level:post/workers=0"], "measured on cpu"),
        (["level:post/workers=2"], "runs on any machine"),
        (["level:post/decode=device"], "runs on any machine"),
        (["study:other"], "runs on any machine"),
    ],
)
def test_a_status_is_what_the_run_measured_or_what_is_needed(found, here, told):
    assert status(row(here=here, status="cpu", needs=[]), found) == (told, "")


@pytest.mark.parametrize(
    ("here", "lacking"),
    [
        (["level:post/workers=0", "level:post/workers=2"], "level:post/workers=2"),
        (["level:post/workers=0", "study:other"], "study:other"),
        (["level:post/workers=0", "claim:post/smaller"], "claim:post/smaller"),
        (["level:post/workers=*"], "level:post/workers=*"),
        (["study:post"], "study:post"),
        (["claim:post/[fs]*"], "claim:post/[fs]*"),
    ],
)
def test_a_statement_is_measured_only_if_all_that_it_references_has_results(found, here, lacking):
    told, remark = status(row(here=here, status="cpu", needs=[], why="Small."), found)
    assert told.startswith("partly measured on cpu")
    assert remark == f"no complete result here for {lacking}. Small."


def test_verdicts_are_counted_with_those_that_have_no_data():
    verdicts = ["no data here", "cannot tell", "no data here"]
    found = {"claim:post/faster": [(["cpu"], verdict) for verdict in verdicts]}
    one = row(here=["claim:post/*"], status="cpu", needs=[])
    assert status(one, found)[0] == "partly measured on cpu: no data here (2), cannot tell"


@pytest.mark.parametrize(
    ("here", "needs", "told"),
    [
        ("level:post/workers=0", ["h100"], "ready"),
        ("level:post/workers=0", ["cpu"], "measured on cpu"),
        ("level:post/workers=0", ["h100", "cpu"], "partly measured on cpu"),
        ("claim:post/faster", ["h100"], "ready"),
        ("claim:post/faster", ["cpu"], "measured on cpu: holds, refuted"),
        ("claim:post/across", ["h100", "gaudi2"], "measured on gaudi2, h100-x1: holds"),
        ("claim:post/across", ["h100"], "ready"),
    ],
)
def test_only_results_of_the_devices_that_a_statement_needs_count(found, here, needs, told):
    assert status(row(here=[here], needs=needs), found)[0] == told


def test_the_remark_names_a_needed_device_without_results(found):
    one = row(here=["level:post/workers=0"], needs=["cpu", "h100"])
    assert status(one, found)[1] == "no complete result here for h100"


@pytest.mark.parametrize("command", ["make plan STUDY=post", "make check-claims"])
def test_a_command_that_runs_nothing_is_not_measured(command):
    one = row(status="cpu", needs=[], command=command)
    assert status(one, {"study:post": [(["cpu"], "ok")]})[0] == "runs on any machine"


def test_a_part_of_a_device_counts_as_it():
    several = {"study:post": [(["h100-x1"], "ok"), (["cpu-x2"], "ok")]}
    assert status(row(), several)[0] == "measured on h100-x1"


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"needs": ["h100", "gaudi2"]}, "needs h100, gaudi2"),
        ({"status": "audited"}, "a measurement needs h100"),
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
