import pyarrow.parquet as pq

from feedrate.cli.jobs import run
from feedrate.results.columns import CELLS, CLAIMS, FIT, QUALITY, RUNS, with_factors
from feedrate.results.files import read_csv, write_csv
from feedrate.results.merge import leaderboard
from feedrate.results.schema import VALUES

FILES = {"runs": ("results", RUNS), "cells": ("cells", CELLS), "claims": ("claims", CLAIMS)}
FILES["fit"] = ("fit", FIT)


def write_study(folder, study, factors, **levels):
    row = {"study": study, "device": "cpu", "cell": "x", "repeat": 1, "status": "ok", "cause": ""}
    for name, columns in FILES.values():
        columns = with_factors(columns, factors)
        write_csv(folder / study / f"{name}.csv", columns, [row | levels])


def arguments(folder, *studies):
    given = [f"--out={folder}"]
    for option, (name, _) in FILES.items():
        given += [f"--{option}", *(str(folder / study / f"{name}.csv") for study in studies)]
    return given


def test_studies_with_other_factors_stand_in_one_table(tmp_path):
    write_study(tmp_path, "a", {"workers": [1]}, workers=2)
    write_study(
        tmp_path, "b", {"size": ["large"], "workers": ["many"]}, size="large", workers="many"
    )
    assert run("merge-results", arguments(tmp_path, "a", "b")) == 0
    rows = read_csv(tmp_path / "results.csv", RUNS)
    assert [(r["study"], r["workers"], r["size"]) for r in rows] == [
        ("a", 2, None),
        ("b", "many", "large"),
    ]
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column("workers").to_pylist() == ["2", "many"]
    assert {p.name for p in tmp_path.glob("*.csv")} == {
        "results.csv", "cells.csv", "claims.csv", "fit.csv", "leaderboard.csv",
    }  # fmt: skip


def test_frictionless_accepts_the_files_by_their_description_and_refuses_a_changed_one(tmp_path):
    from frictionless import Package

    write_study(
        *(tmp_path, "a", {"workers": [1]}),
        **{"workers": 2, "loss_first": float("nan"), "short_epochs": True, "origin": "here"},
    )
    assert run("merge-results", arguments(tmp_path, "a")) == 0
    package = Package(str(tmp_path / "datapackage.json"))
    assert package.validate().valid, package.validate().flatten(["name", "note"])
    assert package.version.startswith("1.0.0+")
    fields = package.get_resource("results-csv").schema
    assert fields.get_field("samples_per_s").type == "number"
    assert fields.get_field("samples_per_s").to_descriptor()["unit"] == "samples/s"
    changed = tmp_path / "results.csv"
    changed.write_text(changed.read_text().replace(",1,ok,", ",first,ok,"))
    said = {error.type for task in package.validate().tasks for error in task.errors}
    assert {"type-error", "hash-count"} <= said


def test_each_number_of_a_run_is_a_row_of_the_leaderboard_with_its_unit(tmp_path):
    rows = [{"study": "a", "device": "cpu", "cell": "x", "repeat": 1, "status": "ok"}] * 3
    rows[0] = rows[0] | {"samples_per_s": 20.0, "samples": 40, "spec_digest": "d1"}
    rows[1] = rows[1] | {"samples_per_s": 20.0, "measured_as": "y"}
    rows[2] = rows[2] | {"samples_per_s": 9.0, "repeat": 2}
    rates = [{"origin": "here", "samples_per_s": 20.0}]
    rates += [{"origin": "published 2023-08", "device": "h100", "samples_per_s": 700.0}]
    found = [
        (row["provenance"], row["metric"], row["value"], row["unit"], row.get("settings_digest"))
        for row in leaderboard(rows, rates)
    ]
    assert found == [
        ("measured", "samples_per_s", 20.0, "samples/s", "d1"),
        ("measured", "samples", 40, VALUES["samples"].unit, "d1"),
        ("measured", "samples_per_s", 9.0, "samples/s", None),
        ("published 2023-08", "samples_per_s", 700.0, "samples/s", None),
    ]


def test_one_study_alone_is_its_own_table(tmp_path):
    write_study(tmp_path, "a", {"workers": [1]}, workers=2)
    assert run("merge-results", arguments(tmp_path, "a")) == 0
    assert (tmp_path / "cells.csv").read_text() == (tmp_path / "a/cells.csv").read_text()


def test_a_missing_file_is_one_sentence(tmp_path, capsys):
    assert run("merge-results", arguments(tmp_path, "nowhere")) == 1
    assert "nowhere" in capsys.readouterr().err


def results(folder, *statuses):
    rows = [
        {"study": "a", "device": "cpu", "cell": "x", "repeat": k, "status": s, "cause": "Why."}
        for k, s in enumerate(statuses, start=1)
    ]
    write_csv(folder / "results.csv", with_factors(RUNS, {}), rows)
    return ["--results", str(folder / "results.csv"), "--out", str(folder / "confirmed.txt")]


def test_results_are_confirmed_where_nothing_failed(tmp_path):
    assert run("confirm-results", results(tmp_path, "ok", "out_of_memory", "unsupported")) == 0
    assert (tmp_path / "confirmed.txt").read_text() == "2 runs, none failed\n"


def test_failed_and_invalid_runs_are_listed(tmp_path, capsys):
    assert run("confirm-results", results(tmp_path, "ok", "failed", "invalid", "unsupported")) == 1
    told = capsys.readouterr().err
    assert "2 of 3 runs did not end well" in told
    assert "a cpu x rep 2: failed: Why." in told
    assert "rep 1" not in told
    assert not (tmp_path / "confirmed.txt").exists()


def test_models_that_were_not_scored_are_counted_apart(tmp_path, capsys):
    where = {"study": "a", "device": "cpu", "cell": "x", "repeat": 1}
    write_csv(
        tmp_path / "quality.csv",
        with_factors(QUALITY, {}),
        [{**where, "status": "failed", "cause": "Why."}],
    )
    scored = ["--quality", str(tmp_path / "quality.csv")]
    assert run("confirm-results", [*results(tmp_path, "ok"), *scored]) == 1
    told = capsys.readouterr().err
    assert told.startswith(
        "feedrate confirm-results: 1 model could not be scored; the report shows"
    )
    assert "a cpu x rep 1: scoring failed: Why." in told
    assert run("confirm-results", [*results(tmp_path, "failed"), *scored]) == 1
    said = "1 of 1 runs did not end well and 1 model could not be scored;"
    assert capsys.readouterr().err.startswith(f"feedrate confirm-results: {said}")


def test_disturbed_runs_are_repeated_by_the_same_command_but_not_for_ever(tmp_path, capsys):
    def told(**disturbed):
        row = {"study": "a", "device": "cpu", "cell": "x", "repeat": 1, "cause": "Stolen."}
        row |= {"status": "invalid", "failed_checks": "pixels;undisturbed", **disturbed}
        write_csv(tmp_path / "results.csv", with_factors(RUNS, {}), [row])
        out = ["--out", str(tmp_path / "confirmed.txt")]
        assert run("confirm-results", ["--results", str(tmp_path / "results.csv"), *out]) == 1
        return capsys.readouterr().err

    assert "not quiet enough" not in told(attempt=2)
    assert "not quiet enough" in told(attempt=3)
    assert "not quiet enough" not in told(attempt=3, failed_checks="pixels")
