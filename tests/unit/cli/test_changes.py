"""What changed between two sets of results, on the terminal."""

import pytest

import feedrate.__main__ as entry
from feedrate.config.study import Thresholds
from result_sets import AFTER, PACKAGES, runs, write_set

LINES = Thresholds()


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Compares two sets of cells; gives the lines that were printed, with single spaces."""
    monkeypatch.chdir(tmp_path)

    def show(before, after, packages=PACKAGES):
        write_set(tmp_path / "before", *before, packages=PACKAGES)
        write_set(tmp_path / "results", *after, packages=packages)
        (tmp_path / "Snakefile").touch()  # the command wants a project
        options = ["compare", "before", "results", "--noise", str(LINES.noise_share)]
        assert entry.main(options) == 0
        return [
            " ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()
        ]

    return show


def test_cells_stand_slowest_first_with_the_factors_that_tell_them_apart(shown):
    lines = shown(
        [runs(0, 10.0, 10.0), runs(1, 10.0, 10.0), runs(2, 10.0, 10.0)],
        [runs(w, rate, rate, day=AFTER) for w, rate in ((0, 10.0), (1, 15.0), (2, 5.0))],
    )
    assert lines == [
        "Before: before/results.csv, 6 runs, started 2026-11-01 10:00 to 2026-11-01 10:02 UTC",
        "After: results/results.csv, 6 runs, started 2026-11-08 10:00 to 2026-11-08 10:02 UTC",
        "loading",
        "device workers before after ratio joint 95% interval change",
        "cpu 2 10 5 0.500 0.500 to 0.500 slower",
        "cpu 0 10 10 1.000 1.000 to 1.000 no difference",
        "cpu 1 10 15 1.500 1.500 to 1.500 faster",
        "1 of 3 cells slower, 1 faster, 1 without a difference.",
    ]


def test_versions_stand_once_above_the_table(shown):
    lines = shown(
        [runs(0, 10.0), runs(1, 10.0)],
        [runs(0, 10.0, day=AFTER), runs(1, 10.0, day=AFTER)],
        packages=PACKAGES | {"torch": "2.9.0"},
    )
    assert lines.count("torch 2.8.0 2.9.0 cpu") == 1
    assert lines.index("What else differs") < lines.index("loading")


def test_another_spec_data_or_code_stands_beside_the_ratio(shown):
    lines = shown(
        [runs(0, 10.0, 10.0), runs(1, 10.0, 10.0)],
        [
            runs(0, 5.0, 5.0, day=AFTER, source_digest="code 2", spec_digest="another"),
            runs(1, 10.0, 10.0, day=AFTER, commit="b" * 40),
        ],
    )
    (row,) = [line for line in lines if " slower " in line]
    assert row.endswith("slower different spec and code")
    assert sum("different " in line for line in lines) == 1
    assert (
        "The spec, data or code differs in 1 cell: there the ratio shows more than the effect of "
        "an update." in lines
    )


def test_single_runs_and_the_same_runs_are_told(shown):
    lines = shown([runs(0, 10.0), runs(1, 9.0)], [runs(0, 20.0, day=AFTER), runs(1, 9.0)])
    assert lines.count("cpu 0 10 20 2.000 faster single run") == 1
    assert any(line.endswith("no difference single run, 1 same run") for line in lines)
    assert (
        "2 cells without a repeat anywhere on the device: single runs show no noise, so rates more "
        "than 10% apart count as different." in lines
    )
    assert "In both sets: 1 run, not repeated." in lines


def test_other_statuses_and_cells_of_one_side_are_listed_and_the_rest_is_counted(shown):
    lack = {"status": "unsupported", "cause": "It lacks [bold]."}
    lines = shown(
        [runs(0, 10.0), runs(1, None), runs(2, 8.0), runs(4, None), runs(6, None, **lack)],
        [
            runs(0, None, status="out_of_memory", cause="No memory [here]."),
            runs(1, 10.0),
            runs(3, 9.0),
            runs(4, None),
            runs(5, None),
            runs(7, None, **lack),
        ],
    )
    table = lines[lines.index("loading") + 2 :]
    assert table[:5] == [
        "cpu 0 10 out_of_memory other status No memory [here].",
        "cpu 1 failed 10 other status It broke.",
        "cpu 2 8 only before",
        "cpu 3 9 only after",
        "cpu 5 failed only after It broke.",
    ]
    assert "and cells of loading without any rate: 1 failed, 2 unsupported" in lines
    assert "No cell has a rate before and after." in lines
    assert (
        "Not compared: 2 with another status, 2 only before, 3 only after, 1 with no rate in "
        "either." in lines
    )


def test_records_that_are_not_there_are_told(shown, tmp_path):
    lines = shown([runs(0, 10.0, 10.0)], [runs(0, 10.0, 10.0, day=AFTER)], packages=None)
    assert (
        "After: the packages of 2 of 2 runs are not known, because their records are not in the "
        "folder of results/results.csv." in lines
    )
    assert not any(line.startswith("Before: the packages") for line in lines)


def test_a_factor_that_only_one_set_has_is_a_column(shown):
    other = runs(0, 12.0, day=AFTER, cell="workers=0~decode=host")
    lines = shown([runs(0, 10.0)], [other])
    assert "device decode before after ratio joint 95% interval change" in lines
    assert "cpu 10 only before" in lines
    assert "cpu host 12 only after" in lines
