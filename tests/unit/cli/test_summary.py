"""The end of a run on the terminal."""

import csv

import pytest

from feedrate.cli import run

COLUMNS = (
    *("study", "device", "cell", "status", "cause", "samples_per_s", "ci_low", "ci_high"),
    *("data_wait_share", "verdict", "recommended", "open", "noisy"),
)
GOOD = {
    "study": "mini",
    "device": "cpu",
    "cell": "workers=0~decode=host",
    "status": "ok",
    "samples_per_s": "25.71",
    "ci_low": "25.1",
    "ci_high": "26.4",
    "data_wait_share": "0.123",
    "verdict": "input-bound",
    "recommended": "true",
}

BAD = {"study": "mini", "device": "cpu", "cell": "workers=2~decode=host"}


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Shows the cells of a study; gives what was printed."""
    monkeypatch.chdir(tmp_path)

    def show(*cells, report=None):
        for folder in ("results", "results/of_an_earlier_call"):
            (tmp_path / folder).mkdir(exist_ok=True)
            with (tmp_path / folder / "cells.csv").open("w", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS, restval="")
                writer.writeheader()
                writer.writerows(cells)
        run.show(report)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]

    return show


def test_a_row_for_each_cell_with_the_factors_that_tell_them_apart(shown):
    other = GOOD | {"cell": "workers=2~decode=host", "recommended": "", "noisy": "true"}
    title, head, first, second = shown(GOOD, other)
    assert title == "mini"
    assert "workers" in head
    assert "decode" not in head, "it is the same in all cells"
    assert " ".join(first.split()) == "cpu 0 25.7 25.1 to 26.4 12% input-bound recommended"
    assert second.split()[-1] == "noisy"


def test_a_cell_that_may_be_the_best_is_not_called_undecided_like_a_verdict(shown):
    undecided = GOOD | {"recommended": "", "open": "Undecided between it and another."}
    assert shown(undecided)[-1].split()[-3:] == ["may", "be", "best"]


def test_what_failed_is_told_with_its_cause_in_one_line(shown):
    cause = "rank 3 was killed by signal 9 (Killed; the kernel killed it for want of memory)"
    bad = {
        "study": "mini",
        "device": "cpu",
        "cell": "workers=2~decode=host",
        "status": "failed",
        "cause": cause,
    }
    row = shown(GOOD, bad)[-1]
    assert " failed " in row
    assert row.endswith(cause)
