"""`python -m feedrate score`: whatever happens, a quality.json says it."""

import json
import subprocess

import msgspec
import pytest
from models_kept import arguments, end, keep_model, make_spec

import warm
from feedrate.cli import jobs
from feedrate.config.spec import Software
from feedrate.devices.host import host_lock, lock_name
from feedrate.results.record import read_quality

pytestmark = pytest.mark.usefixtures("own_lock")


def test_a_model_is_scored_in_a_process_of_its_own(tiny_prepared, tmp_path):
    spec = make_spec()
    keep_model(spec, tiny_prepared, tmp_path)
    done = subprocess.run(
        [warm.python(), "-m", "feedrate", "score", *arguments(spec, tiny_prepared, tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "%|" not in done.stderr, "a bar among the workflow's lines"
    quality = read_quality(tmp_path / "quality.json")
    assert (quality.status, quality.attempt, quality.cause) == ("ok", 1, "")
    assert quality.seconds > 0
    assert {score.moment for score in quality.scores} == {"before", "after"}
    assert {path.name for path in tmp_path.iterdir()} == {"outcome.json", "trainer", "quality.json"}


def test_scoring_is_alone_on_its_host(tiny_prepared, tmp_path, monkeypatch):
    """The worker holds the lock too, so that it is free only when that has ended."""
    locks = []

    def stop():
        raise InterruptedError

    def run(_command, *, pass_fds, **_options):
        with pytest.raises(InterruptedError), host_lock(lock_name(), print, stop):
            pass
        locks.extend(pass_fds)
        return subprocess.CompletedProcess([], 7)

    spec = make_spec()
    keep_model(spec, tiny_prepared, tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    assert jobs.run("score", arguments(spec, tiny_prepared, tmp_path)) == 0
    assert len(locks) == 1
    assert "exit code 7" in read_quality(tmp_path / "quality.json").cause


@pytest.mark.parametrize("status", ["failed", "out_of_memory"])
def test_a_run_that_did_not_end_well_has_no_model(status, tiny_prepared, tmp_path, capsys):
    end(tmp_path, status, "The loss exploded.")
    assert jobs.run("score", arguments(make_spec(), tiny_prepared, tmp_path)) == 0
    quality = read_quality(tmp_path / "quality.json")
    assert quality.status == "no_model"
    assert (
        quality.cause == f"The run ended with status {status.replace('_', ' ')}: The loss exploded."
    )
    assert quality.scores == []
    assert "The loss exploded." in capsys.readouterr().err


def test_a_run_that_kept_no_weights_has_no_model(tiny_prepared, tmp_path):
    end(tmp_path, "ok")
    assert jobs.run("score", arguments(make_spec(), tiny_prepared, tmp_path)) == 0
    quality = read_quality(tmp_path / "quality.json")
    assert (quality.status, quality.scores) == ("no_model", [])
    assert "kept no weights" in quality.cause


def test_software_that_is_not_there_is_a_cause(tiny_prepared, tmp_path):
    spec = make_spec()
    keep_model(spec, tiny_prepared, tmp_path)
    absent = msgspec.structs.replace(spec, software=Software(python="/nowhere/python"))
    assert jobs.run("score", [*arguments(absent, tiny_prepared, tmp_path), "--attempt", "3"]) == 0
    quality = read_quality(tmp_path / "quality.json")
    assert (quality.status, quality.attempt) == ("failed", 3)
    assert "/nowhere/python" in quality.cause


def test_weights_that_cannot_be_read_are_a_cause(tiny_prepared, tmp_path):
    spec = msgspec.structs.replace(make_spec(), software=Software(python=warm.python()))
    weights = keep_model(spec, tiny_prepared, tmp_path)
    next(weights.glob("*.safetensors")).write_bytes(b"no weights")
    assert jobs.run("score", arguments(spec, tiny_prepared, tmp_path)) == 0
    quality = read_quality(tmp_path / "quality.json")
    assert quality.status == "failed"
    assert str(weights) in quality.cause
    assert "\n" not in quality.cause


def test_a_file_that_is_no_outcome_is_one_sentence(tiny_prepared, tmp_path, capsys):
    (tmp_path / "outcome.json").write_text("[]")
    assert jobs.run("score", arguments(make_spec(), tiny_prepared, tmp_path)) == 1
    assert "not an outcome" in capsys.readouterr().err
    assert not (tmp_path / "quality.json").exists()


def test_a_spec_that_is_none_is_one_sentence(tiny_prepared, tmp_path, capsys):
    end(tmp_path, "ok")
    given = arguments(make_spec(), tiny_prepared, tmp_path)
    given[1] = json.dumps({"study": 3})
    assert jobs.run("score", given) == 1
    assert capsys.readouterr().err.startswith("feedrate score: --spec")


def test_scoring_that_was_given_up_is_recorded(tiny_prepared, tmp_path, monkeypatch):
    spec = make_spec()
    keep_model(spec, tiny_prepared, tmp_path)
    causes = tmp_path / "lost"
    causes.write_text(json.dumps({str(tmp_path / "quality.json"): "its node was lost"}))
    monkeypatch.setenv("FEEDRATE_LOST", str(causes))
    assert jobs.run("score", arguments(spec, tiny_prepared, tmp_path)) == 0
    quality = read_quality(tmp_path / "quality.json")
    assert (quality.status, quality.cause) == ("failed", "its node was lost")


def test_a_run_that_was_lost_still_has_no_model(tiny_prepared, tmp_path, monkeypatch):
    end(tmp_path, "failed", "its node was lost")
    monkeypatch.setenv("FEEDRATE_LOST", str(tmp_path / "anything"))
    assert jobs.run("score", arguments(make_spec(), tiny_prepared, tmp_path)) == 0
    assert read_quality(tmp_path / "quality.json").status == "no_model"
