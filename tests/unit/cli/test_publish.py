"""`python -m feedrate publish`: the runs of results.csv in each tracker, once."""

import importlib.util
import sys

import pytest

from feedrate import __main__ as entry
from feedrate.cli import publish
from feedrate.core.errors import MASK
from feedrate.jobs import trackers
from result_sets import PACKAGES, runs, write_set


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with three runs, one of which failed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("")
    rates = runs(0, 100.0, None), runs(1, 50.0, model="tiny", checkpoint="of s3kret-s3kret")
    write_set(tmp_path / "results", *rates, packages=PACKAGES)
    for variable in trackers.DEFAULTS:
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_DIR", "")
    monkeypatch.delenv("WANDB_DIR")
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def send(*words):
    return entry.main(["publish", *words])


def test_a_run_has_its_settings_numbers_and_status_and_no_token(root, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3kret-s3kret")
    first, failed, other = publish.read_runs(root / "results/results.csv")
    assert first.metrics["samples_per_s"] == 100.0
    assert (first.status, failed.status, failed.metrics.get("samples_per_s")) == (
        "ok",
        "failed",
        None,
    )
    assert (other.settings["workers"], other.settings["model"]) == (1, "tiny")
    assert other.settings["checkpoint"] == MASK
    assert len({run.identity for run in (first, failed, other)}) == 3
    again = list(publish.read_runs(root / "results/results.csv"))
    assert [run.identity for run in again] == [first.identity, failed.identity, other.identity]


@pytest.mark.parametrize(
    ("tracker", "said"), [("mlflow", "MLFLOW_TRACKING_URI"), ("wandb", "WANDB_MODE (offline) or")]
)
def test_where_the_runs_go_has_to_be_said(root, tracker, said, capsys, monkeypatch):
    monkeypatch.setattr(publish.importlib.util, "find_spec", lambda _name: True)
    assert send("--to", tracker) == 2
    assert f"--to {tracker} needs the environment variable {said}" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named_with_its_installation(root, capsys, monkeypatch):
    monkeypatch.setattr(publish.importlib.util, "find_spec", lambda name: name == "mlflow" or None)
    assert send("--to", "trackio") == 2
    told = capsys.readouterr().err
    assert "--to trackio: not allowed, because this Python has no package trackio" in told
    assert "allowed: mlflow" in told
    assert "-r requirements/trackers.txt" in told


def test_what_a_tracker_says_is_one_sentence(root, capsys, monkeypatch):
    def refuse(_runs, _project):
        raise ConnectionError("the server does not answer")

    monkeypatch.setitem(publish.SENDERS, "trackio", refuse)
    monkeypatch.setattr(publish.importlib.util, "find_spec", lambda _name: True)
    assert send("--to", "trackio") == 2
    said = "feedrate: trackio: ConnectionError: the server does not answer\n"
    assert capsys.readouterr().err == said


def test_no_password_is_printed(root, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address := "http://me:s3kret-s3kret@host:5000")

    def tell(_runs, _project):
        print(f"View run at: {address}/#/experiments/1")
        print(f"wandb: at {address}", file=sys.stderr)
        return 3

    monkeypatch.setitem(publish.SENDERS, "mlflow", tell)
    monkeypatch.setattr(publish.importlib.util, "find_spec", lambda _name: True)
    assert send("--to", "mlflow") == 0
    out, err = capsys.readouterr()
    assert f"View run at: http://me:{MASK}@host:5000" in out
    assert f"http://me:{MASK}@host:5000" in err


def needs(name):
    absent = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(absent, reason=f"{name} is not in requirements/dev.lock; not here")


@needs("mlflow")
def test_mlflow_gets_each_run_once(root, monkeypatch, capsys):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"file:{root}/ml")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert send("--to", "mlflow", "--project", "p") == 0
    assert send("--to", "mlflow", "--project", "p", "results/results.csv") == 0
    out = capsys.readouterr().out
    assert "3 runs sent to mlflow, 0 there already." in out
    assert "0 runs sent to mlflow, 3 there already." in out
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    assert sorted(run.info.status for run in found) == ["FAILED", "FINISHED", "FINISHED"]
    rates = {run.data.metrics.get("samples_per_s") for run in found}
    assert rates == {100.0, None, 50.0}
    assert {run.data.params["workers"] for run in found} == {"0", "1"}


@needs("trackio")
def test_trackio_gets_each_run_once(root, monkeypatch, capsys):
    import trackio

    for module in (trackio.utils, trackio.sqlite_storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", root / "db", raising=False)
    assert send("--to", "trackio") == send("--to", "trackio") == 0
    assert "0 runs sent to trackio, 3 there already." in capsys.readouterr().out
    found = list(trackio.Api().runs(trackers.PROJECT))
    assert {run.config["status"] for run in found} == {"ok", "failed"}


@needs("wandb")
def test_wandb_gets_runs_under_their_identity(root, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert send("--to", "wandb") == 0
    files = {file.name for file in root.glob("results/wandb/offline-run-*/run-*.wandb")}
    runs = publish.read_runs(root / "results/results.csv")
    assert files == {f"run-{run.identity}.wandb" for run in runs}
