"""quality.json of a study's runs, as rows."""

import json

import pytest

from feedrate.cli.jobs import run
from feedrate.results.columns import QUALITY
from feedrate.results.files import read_csv

SCORE = {
    "moment": "after",
    "on": "test",
    "metric": "matching_accuracy",
    "value": 0.5,
    "low": 0.4,
    "high": 0.6,
    "n": 60,
    "chance": 0.2,
    "seconds": 1.5,
}


def quality(folder, name, **changes):
    file = folder / f"{name}.json"
    told = {"schema": 1, "status": "ok", "seconds": 9.5, "scores": [], **changes}
    file.write_text(json.dumps(told))
    return str(file)


def settings(*files):
    return repr(
        {
            "study": "s",
            "factors": {"workers": {"sets": "loader.workers", "levels": [0, 1]}},
            "runs": [
                {
                    "file": file,
                    "device": "cpu",
                    "cell": f"workers={n}",
                    "levels": {"workers": n},
                    "repeat": 1,
                }
                for n, file in enumerate(files)
            ],
        }
    )


def test_a_row_for_each_score_and_one_for_a_run_without(tmp_path):
    scores = [SCORE, {**SCORE, "moment": "before", "value": None, "low": None, "high": None}]
    files = (
        quality(tmp_path, "a", scores=scores),
        quality(tmp_path, "b", status="no_model", cause="The run ended with status failed: so."),
    )
    out = tmp_path / "quality.csv"
    assert run("collect-quality", ["--settings", settings(*files), "--out", str(out)]) == 0
    after, before, absent = read_csv(out, QUALITY)
    assert (after["value"], after["low"], after["chance"], after["n"]) == (0.5, 0.4, 0.2, 60)
    assert (after["workers"], after["repeat"], after["job_s"]) == (0, 1, 9.5)
    assert (before["moment"], before["value"]) == ("before", None)
    assert (absent["status"], absent["cause"]) == (
        "no_model",
        "The run ended with status failed: so.",
    )
    assert (absent["metric"], absent["value"], absent["workers"]) == ("", None, 1)


def test_settings_come_from_a_file_too(tmp_path):
    given = tmp_path / "given"
    given.write_text(f"--settings\n{settings(quality(tmp_path, 'a', scores=[SCORE]))}")
    assert run("collect-quality", [f"@{given}", "--out", str(tmp_path / "quality.csv")]) == 0
    assert len(read_csv(tmp_path / "quality.csv", QUALITY)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not of this version"), ('{"schema": 7, "status": "ok"}', "schema 7 is not allowed")],
)
def test_another_file_is_one_sentence(text, said, tmp_path, capsys):
    file = tmp_path / "a.json"
    file.write_text(text)
    assert (
        run(
            "collect-quality", ["--settings", settings(str(file)), "--out", str(tmp_path / "q.csv")]
        )
        == 1
    )
    error = capsys.readouterr().err
    assert str(file) in error
    assert said in error
    assert not (tmp_path / "q.csv").exists()
