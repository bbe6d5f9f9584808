"""`python -m feedrate compare`: what it prints, writes, and ends with."""

import json
import shutil
from pathlib import Path

import pytest

from campaign import STUDY, campaign
from feedrate import __main__ as entry
from feedrate.results.files import COMPARISON, read_csv
from result_sets import AFTER, PACKAGES, runs, write_set

ROOT = Path(__file__).resolve().parents[3]
OLD = {0: (100.0, 101.0), 1: (50.0, 51.0)}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with results before and after: one cell slower by 30%, one the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("")
    shutil.copytree(ROOT / "tests/golden/config", tmp_path / "config")
    after = {"day": AFTER, "packages": PACKAGES | {"torch": "2.9.0"}}
    write_set(tmp_path / "before", *(runs(w, *r, packages=PACKAGES) for w, r in OLD.items()))
    write_set(tmp_path / "results", runs(0, 70.0, 71.0, **after), runs(1, 50.0, 51.0, **after))
    return tmp_path


def compare(*arguments):
    return entry.main(["compare", *map(str, arguments)])


def shown(root, capsys, before, after):
    """What is printed of two sets of cells: lines with single spaces."""
    write_set(root / "before", *before)
    write_set(root / "results", *after)
    assert compare("before", "results") == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_cells_stand_slowest_first(root, capsys):
    lines = shown(
        *(root, capsys),
        [runs(0, 10.0, 10.0), runs(1, 10.0, 10.0), runs(2, 10.0, 10.0)],
        [runs(w, rate, rate, day=AFTER) for w, rate in ((0, 10.0), (1, 15.0), (2, 5.0))],
    )
    assert lines[-5:] == [
        "device cell before after ratio joint 95% interval change",
        "cpu workers=2 10 5 0.5000 0.5000 to 0.5000 slower",
        "cpu workers=0 10 10 1.000 1.000 to 1.000 no difference",
        "cpu workers=1 10 15 1.500 1.500 to 1.500 faster",
        "3 cells: 1 slower, 1 faster, 1 no difference.",
    ]


def test_a_ratio_has_its_remarks(root, capsys):
    lines = shown(
        *(root, capsys),
        [runs(0, 10.0), runs(1, 9.0), runs(2, 10.0)],
        [runs(0, 20.0, day=AFTER, source_digest="2"), runs(1, 9.0), runs(2, None, cause="[why]")],
    )
    assert "cpu workers=0 10 20 2.000 faster different code, single run" in lines
    assert any(line.endswith("no difference single run, 1 same run") for line in lines)
    assert "cpu workers=2 10 failed other status [why]" in lines


def test_the_rows_are_written(root):
    assert compare("before", "results", "--out", "kept/changes.csv") == 0
    slow, same = read_csv(root / "kept/changes.csv", COMPARISON)
    assert (slow["workers"], slow["change"]) == (0, "slower")
    assert slow["ratio"] == pytest.approx(70.5 / 100.5)
    assert (same["workers"], same["change"], same["ratio"]) == (1, "no difference", 1.0)
    assert slow["software"] == "torch 2.8.0 to 2.9.0"


@pytest.mark.parametrize(("share", "code"), [("0", 1), ("0.25", 1), ("0.3", 0), ("0.5", 0)])
def test_slower_by_more_than_a_share_can_fail(root, share, code, capsys):
    assert compare("before", "results", "--fail-slower", share) == code
    told = capsys.readouterr().err
    if code:
        assert told == (
            f"feedrate: slower by more than {share}, or without a rate now: loading cpu workers=0\n"
        )
    else:
        assert told == ""


def test_nothing_in_common_cannot_pass_for_as_fast(root, capsys):
    write_set(root / "results", runs(4, 100.0))
    assert compare("before", "results") == 0
    assert "3 cells: 2 only before, 1 only after." in capsys.readouterr().out
    assert compare("before", "results", "--fail-slower", "0.05") == 1
    assert "nothing was compared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nowhere", "results"), 1, "nowhere: neither a folder with results nor a set of runs"),
        (("before", "00000000"), 1, "00000000: runs/ has no set of this name"),
        (("before", "results", "more"), 2, "unknown: more"),
        (("before",), 2, "compare needs OLD and NEW; without both, it lists the sets of runs"),
    ],
)
def test_what_is_wrong_is_one_sentence(root, arguments, code, text, capsys):
    assert compare(*arguments) == code
    shown = capsys.readouterr()
    assert shown.err == f"feedrate: {text}\n"
    assert shown.out == ""


def test_markdown_has_the_summary_and_a_row_for_each_cell(root, capsys):
    assert compare("before", "results", "--format", "markdown", "--fail-slower", "0.1") == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "2 cells: 1 slower, 1 no difference."
    cells = rest[rest.index("**loading**") + 4 :]
    found = [[text.strip() for text in line.split("|")] for line in cells[:2]]
    assert [(row[2], row[5], row[7]) for row in found] == [
        ("workers=0", "0.7015", "slower"),
        ("workers=1", "1.000", "no difference"),
    ]
    assert "| torch | 2.8.0 | 2.9.0 | cpu |" in rest
    tables = [line for line in rest if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 2  # one width for each of the two tables


def test_runs_before_and_after_an_update_are_compared_by_two_identities(
    tmp_path, monkeypatch, capsys
):
    """The runs after it have folders beside those before."""
    monkeypatch.chdir(campaign(tmp_path / "project"))
    for old in sorted(Path("runs").glob("*/*/*/rep*")):
        new = shutil.copytree(old, old.with_name(old.name.replace("0a1b2c3d", "11111111")))
        first, _, rest = (new / "events.jsonl").read_text().partition("\n")
        start = json.loads(first)
        start["packages"]["torch"] = "99.0"
        (new / "events.jsonl").write_text(f"{json.dumps(start)}\n{rest}")
        outcome = json.loads((new / "outcome.json").read_text())
        outcome["started_at"] = outcome["started_at"].replace("2026", "2027")
        (new / "outcome.json").write_text(json.dumps(outcome))
    assert compare() == 0
    _, _, newer, older = capsys.readouterr().out.splitlines()
    assert newer.startswith("11111111  12 runs from 2027-")
    assert f"{STUDY} cpu: 12" in newer
    assert older.startswith("0a1b2c3d  12 runs from 2026-")
    assert compare("0a1b2c3d", "11111111") == 0
    out = capsys.readouterr().out
    assert "99.0" in out
    assert out.count("1.000") >= 4
    assert compare("0a1b2c3d", "0a1b2c3d", "--fail-slower", "0") == 0
