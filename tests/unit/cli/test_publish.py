"""`python -m feedrate publish`: the runs of results.csv in each tracker, once."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from types import SimpleNamespace

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
    names = "MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY"
    for name in (*names, "TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN", "TRACKIO_SPACE_ID"):
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
    spec = {"software": {"environment": {"X_TOKEN": "abc", "OMP": "1"}}}
    monkeypatch.setattr(publish, "record_of", lambda *_: {"spec": spec})
    settings = next(publish.read_runs(root / "results/results.csv")).settings
    assert settings["spec.software.environment.X_TOKEN"] == MASK
    assert settings["spec.software.environment.OMP"] == "1"
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
    out = capsys.readouterr().out
    assert f"View run at: http://me:{MASK}@host:5000" in out
    assert f"wandb: at http://me:{MASK}@host:5000" in out


class Server:
    """Stands for trackio's client of its own server, which keeps what it got."""

    kept: list[dict] = []
    refuses = False

    def __init__(self, address, write_token=None):
        self.given = address, write_token

    def predict(self, *, api_name, **given):
        if self.refuses:
            raise RuntimeError(f"no write token for {self.given}")
        if api_name == "/bulk_log":
            Server.kept += given["logs"]
        return [{"name": log["run"], "id": log["run_id"]} for log in Server.kept]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(RemoteClient=Server))
    monkeypatch.setattr(publish.importlib.util, "find_spec", lambda _name: True)
    monkeypatch.setattr(Server, "kept", [])
    return Server


WHERE = [
    {"TRACKIO_SERVER_URL": "http://host:7860", "TRACKIO_WRITE_TOKEN": "s3kret-s3kret"},
    {"TRACKIO_SERVER_URL": "http://host:7860/?write_token=s3kret-s3kret"},
]


@pytest.mark.parametrize("where", WHERE)
def test_the_server_of_trackio_says_what_it_has(root, server, where, monkeypatch, capsys):
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    assert send("--to", "trackio") == 0
    server.kept[1:] = []  # as if it had lost two of them
    assert send("--to", "trackio") == send("--to", "trackio") == 0
    out = capsys.readouterr().out
    for sent, there in ((3, 0), (2, 1), (0, 3)):
        assert f"{sent} runs sent to trackio, {there} there already." in out
    runs = list(publish.read_runs(root / "results/results.csv"))
    assert [log["run_id"] for log in server.kept] == [run.identity for run in runs]
    assert server.kept[0]["metrics"]["samples_per_s"] == 100.0


@pytest.mark.parametrize("where", WHERE)
def test_what_trackios_server_refuses_is_said_without_its_token(
    root, server, where, monkeypatch, capsys
):
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(server, "refuses", True)
    assert send("--to", "trackio") == 2
    said = capsys.readouterr().err
    assert "trackio: RuntimeError: no write token" in said
    assert MASK in said
    assert "s3kret" not in said


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


@needs("trackio")
def test_a_real_server_of_trackio_gets_each_run_once(root, monkeypatch, capsys):
    from trackio import RemoteClient

    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "s3kret-s3kret")
    where = {"TRACKIO_DIR": str(root / "served"), "GRADIO_SERVER_PORT": str(port)}
    code = "import trackio; trackio.show(open_browser=False)"
    served = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **where})
    monkeypatch.setenv("TRACKIO_SERVER_URL", address := f"http://127.0.0.1:{port}")
    try:
        for _ in range(600):
            with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port))):
                break
            time.sleep(0.1)
        assert send("--to", "trackio") == send("--to", "trackio") == 0
        monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "another-token")
        asked = RemoteClient(address)
        found = asked.predict(api_name="/get_runs_for_project", project=trackers.PROJECT)
        assert send("--to", "trackio", "--project", "other") == 2
    finally:
        served.kill()
        served.wait()
    runs = publish.read_runs(root / "results/results.csv")
    assert sorted(run["id"] for run in found) == sorted(run.identity for run in runs)
    assert "0 runs sent to trackio, 3 there already." in capsys.readouterr().out


@needs("wandb")
def test_wandb_gets_runs_under_their_identity(root, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert send("--to", "wandb") == 0
    files = {file.name for file in root.glob("results/wandb/offline-run-*/run-*.wandb")}
    runs = publish.read_runs(root / "results/results.csv")
    assert files == {f"run-{run.identity}.wandb" for run in runs}
