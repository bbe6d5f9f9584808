"""`python -m feedrate compare`: what it prints, writes, and ends with."""

import subprocess
import sys

import pytest

from feedrate import __main__ as entry
from feedrate.results.columns import COMPARISON
from feedrate.results.files import read_csv
from result_sets import AFTER, PACKAGES, runs, write_set


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with results before and after: one cell slower by 30%, one the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("")
    write_set(tmp_path / "before", runs(0, 100.0, 101.0), runs(1, 50.0, 51.0), packages=PACKAGES)
    write_set(
        tmp_path / "results",
        runs(0, 70.0, 71.0, day=AFTER),
        runs(1, 50.0, 51.0, day=AFTER),
        packages=PACKAGES | {"torch": "2.9.0"},
    )
    return tmp_path


def compare(*arguments):
    return entry.main(["compare", *map(str, arguments)])


def test_what_changed_is_printed_and_is_no_failure(root, capsys):
    assert compare("before", ".") == 0
    out = capsys.readouterr().out
    assert "Before: before/results.csv, 4 runs, started 2026-11-01 10:00 to 2026-11-01 10:01" in out
    assert "1 of 2 cells slower, 0 faster, 1 without a difference." in out
    assert out.index("2.9.0") < out.index("slower")


def test_high_rates_are_written_out(root, capsys):
    write_set(root / "fast", runs(0, 15104.0, 15106.0))
    assert compare("before", "fast") == 0
    assert "15,105" in capsys.readouterr().out


def test_the_rows_are_written(root):
    assert compare("before", "results", "--out", "kept/changes.csv") == 0
    slow, same = read_csv(root / "kept/changes.csv", COMPARISON)
    assert (slow["workers"], slow["change"]) == (0, "slower")
    assert slow["ratio"] == pytest.approx(70.5 / 100.5)
    assert (same["workers"], same["change"], same["ratio"]) == (1, "no difference", 1.0)
    assert slow["software"] == "torch 2.8.0 to 2.9.0"


@pytest.mark.parametrize("column", ["repeat", "attempt"])
def test_a_number_that_no_table_holds_is_told_with_its_line(root, capsys, column):
    file = root / "before/results.csv"
    header, first, *rest = file.read_text().splitlines()
    fields = first.split(",")
    fields[header.split(",").index(column)] = "1" * 25
    file.write_text("\n".join([header, ",".join(fields), *rest, ""]))
    assert compare("before", "results") == 2
    told = capsys.readouterr().err
    assert told.startswith("feedrate: before/results.csv, line 2: ")
    assert told.count("\n") == 1


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


def test_what_lies_within_noise_does_not_fail(root):
    assert compare("before", "results", "--noise", "0.5", "--fail-slower", "0.05") == 0


def test_a_cell_that_lost_its_rate_fails_too(root, capsys):
    write_set(root / "results", runs(0, 100.0, 100.0, day=AFTER), runs(1, None, day=AFTER))
    assert compare("before", "results") == 0
    assert compare("before", "results", "--fail-slower", "0.9") == 1
    assert capsys.readouterr().err.endswith("without a rate now: loading cpu workers=1\n")


def test_nothing_in_common_cannot_pass_for_as_fast(root, capsys):
    write_set(root / "results", runs(4, 100.0))
    assert compare("before", "results") == 0
    assert "No cell has a rate before and after." in capsys.readouterr().out
    assert compare("before", "results", "--fail-slower", "0.05") == 1
    assert "nothing was compared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nowhere", "results"), "nowhere: there is no such file or folder"),
        (("before", "Snakefile"), "Snakefile: there are no runs in it"),
        (("before", "results", "more"), "unknown: more"),
        (
            ("before", "results", "--out", "before/results.csv"),
            "--out before/results.csv: not allowed; this file is being compared",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(root, arguments, text, capsys):
    kept = (root / "before/results.csv").read_bytes()
    assert compare(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.err == f"feedrate: {text}\n"
    assert shown.out == ""
    assert (root / "before/results.csv").read_bytes() == kept


def test_a_file_that_cannot_be_written_is_one_sentence(root, capsys):
    assert compare("before", "results", "--out", "Snakefile/changes.csv") == 2
    told = capsys.readouterr().err
    assert "Snakefile" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("option", ["--noise", "--fail-slower"])
@pytest.mark.parametrize("share", ["-0.1", "5", "nan", "much"])
def test_a_share_that_is_none_is_told(root, option, share, capsys):
    with pytest.raises(SystemExit) as ended:
        compare("before", "results", f"{option}={share}")
    assert ended.value.code == 2
    assert f"{share!r} is not allowed; expected a share from 0 to 1" in capsys.readouterr().err


def test_it_needs_neither_torch_nor_snakemake(root):
    script = (
        "import sys; from feedrate.__main__ import main; main(['compare', 'before', 'results'])\n"
        "print([name for name in ('torch', 'snakemake') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_markdown_has_the_summary_and_a_row_for_each_cell(root, capsys):
    assert compare("before", "results", "--format", "markdown", "--fail-slower", "0.1") == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "1 of 2 cells slower, 0 faster, 1 without a difference."
    cells = rest[rest.index("**loading**") + 4 :]
    found = [[text.strip() for text in line.split("|")] for line in cells[:2]]
    assert [(row[2], row[5], row[7]) for row in found] == [
        ("0", "0.701", "slower"),
        ("1", "1.000", "no difference"),
    ]
    assert "| torch | 2.8.0 | 2.9.0 | cpu |" in rest
    tables = [line for line in rest if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 2  # one width for each of the two tables
