"""Results are confirmed: what failed is listed, and what was disturbed is made again."""

from feedrate.cli.jobs import run
from feedrate.results.files import RUNS, with_factors, write_csv


def results(folder, *statuses):
    rows = [
        {"study": "a", "device": "cpu", "cell": "x", "repeat": k, "status": s, "cause": "Why."}
        for k, s in enumerate(statuses, start=1)
    ]
    write_csv(folder / "results.csv", with_factors(RUNS, {}), rows)
    return ["--results", str(folder / "results.csv"), "--out", str(folder / "confirmed.txt")]


def test_results_are_confirmed_where_nothing_failed(tmp_path):
    assert run("confirm_results", results(tmp_path, "ok", "out_of_memory", "unsupported")) == 0
    assert (tmp_path / "confirmed.txt").read_text() == "2 runs, none failed\n"


def test_runs_that_did_not_end_well_are_listed(tmp_path, capsys):
    assert run("confirm_results", results(tmp_path, "ok", "failed", "invalid", "missing")) == 1
    told = capsys.readouterr().err
    assert "3 of 4 runs did not end well" in told
    assert "a cpu x rep 4: missing: Why." in told
    assert "a cpu x rep 2: failed: Why." in told
    assert "rep 1" not in told
    assert not (tmp_path / "confirmed.txt").exists()


def test_disturbed_runs_are_repeated_by_the_same_command_but_not_for_ever(tmp_path, capsys):
    def told(**disturbed):
        row = {"study": "a", "device": "cpu", "cell": "x", "repeat": 1, "cause": "Stolen."}
        row |= {"status": "invalid", "failed_checks": "pixels;undisturbed", "folder": "runs/a"}
        row |= disturbed
        write_csv(tmp_path / "results.csv", with_factors(RUNS, {}), [row])
        out = ["--out", str(tmp_path / "confirmed.txt")]
        assert run("confirm_results", ["--results", str(tmp_path / "results.csv"), *out]) == 1
        return capsys.readouterr().err

    forced = "python -m feedrate run --forcerun runs/a/outcome.json"
    assert told(attempt=2).strip().endswith("python -m feedrate run")
    assert told(attempt=3).strip().endswith(forced)
    assert told(attempt=3, failed_checks="pixels").strip().endswith("python -m feedrate run")
