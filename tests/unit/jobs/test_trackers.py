"""Trackers of experiments: what they are given, what they cost, and that they fail no job."""

import importlib.util
import sys
import time
from types import SimpleNamespace

import pytest
from one_weight import OneWeight, Rows
from training_jobs import make_spec, named, read_events

from feedrate.core import variables
from feedrate.core.errors import MASK
from feedrate.devices.base import adapter
from feedrate.jobs import trackers
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import Meter
from feedrate.jobs.trainer import make_trainer

LOG_S = 0.05


class Slow:
    """Stands for an integration of the Trainer; its calls are noted and take `LOG_S`, those of
    each step a fifth of it."""

    called: list[str] = []
    fails = ""

    def __getattr__(self, event):
        def call(_args, _state, _control, **_given):
            Slow.called.append(event)
            time.sleep(LOG_S / 5 if "step" in event else LOG_S)
            if event == Slow.fails:
                raise ConnectionError("no answer; the key was sekret-sekret")

        return call


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train 20 steps with these trackers, and log once more as evaluations do; the events."""

    def _train(names, **environment):
        monkeypatch.setenv(variables.TRACKERS, names)
        for variable in trackers.DEFAULTS:  # what the job sets must not outlive the test
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        monkeypatch.setenv("WANDB_DIR", str(tmp_path))
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        spec, log, device = (
            make_spec(steps=20, warmup_steps=4),
            EventLog(tmp_path, 0),
            adapter("cpu"),
        )
        meter = Meter(device, log, 20, 4)
        made = trackers.make_trackers(log, meter, tmp_path / "trainer")
        trainer = make_trainer(
            spec, device, tmp_path / "trainer", meter, OneWeight(), Rows(), trackers=made
        )
        trainer.train()
        trainer.log({"eval_loss": 1.5})
        for tracker in made:
            tracker.close()
        trainer.log({"later": 1.0})
        return read_events(tmp_path / "events.jsonl")

    return _train


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(trackers, "integration", lambda _name: Slow())
    monkeypatch.setattr(Slow, "called", [])
    monkeypatch.setattr(Slow, "fails", "")
    return Slow


def test_the_time_of_a_tracker_is_told_and_not_counted(train, slow):
    events = train("mlflow")
    logs = slow.called.count("on_log")
    assert logs >= 3
    (window,), (note,) = named(events, "window"), named(events, "note")
    inside = sum(step % 10 == 0 and 4 < step < 20 for step in range(1, 21))
    assert window["paused_s"] >= inside * LOG_S
    assert window["wall_s"] == pytest.approx(
        sum(s["step_s"] for s in named(events, "step") if not s["warmup"]), rel=0.1
    )
    assert note["about"] == "tracker"
    assert note["message"].startswith("mlflow: 0.")
    assert note["message"].endswith(f" s in {logs} calls")


def test_the_run_of_a_tracker_ends_after_the_evaluations(train, slow):
    train("mlflow")
    assert slow.called[0] == "on_train_begin"
    assert slow.called[-2:] == ["on_log", "on_train_end"]


@pytest.mark.parametrize("fails", ["on_train_begin", "on_log", "on_train_end"])
def test_a_tracker_that_fails_loses_nothing_and_gives_no_token_away(
    train, slow, monkeypatch, fails
):
    monkeypatch.setattr(slow, "fails", fails)
    events = train("wandb", WANDB_API_KEY="sekret-sekret")
    assert len(named(events, "step")) == 20
    assert named(events, "window")
    note = named(events, "note")[0]
    assert note["type"] == "ConnectionError"
    assert note["message"].startswith("wandb failed, its run ends here: no answer")
    assert MASK in note["message"]
    assert "sekret" not in str(events)
    assert slow.called.count(fails) == 1


def test_a_call_that_never_ends_is_cut_off(train, slow, monkeypatch):
    monkeypatch.setattr(trackers, "CALL_S", LOG_S / 5)
    events = train("mlflow")
    assert named(events, "note")[0]["message"].endswith("no answer within 0.01 s")
    assert len(named(events, "step")) == 20


def test_a_tracker_that_is_not_installed_is_noted(train, monkeypatch):
    monkeypatch.setattr("transformers.integrations.integration_utils.is_wandb_available", lambda: 0)
    events = train("wandb")
    assert "pip install wandb" in named(events, "note")[0]["message"]
    assert named(events, "window")


def test_without_trackers_there_is_no_callback_and_no_variable(monkeypatch, tmp_path):
    monkeypatch.delenv(variables.TRACKERS, raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    assert trackers.make_trackers(EventLog(tmp_path, 0), None, tmp_path) == []
    assert "WANDB_DIR" not in trackers.os.environ


def test_trackio_takes_no_samples_of_the_machine(monkeypatch):
    given = {}
    module = SimpleNamespace(init=lambda **options: given.update(options))
    monkeypatch.setitem(sys.modules, "trackio", module)
    found = "transformers.integrations.get_reporting_integration_callbacks"
    monkeypatch.setattr(found, lambda _names: [object])
    trackers.integration("trackio")
    module.init(project="p")
    assert given == {"project": "p", "auto_log_cpu": False, "auto_log_gpu": False}


def needs(name):
    absent = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(absent, reason=f"{name} is not in requirements/dev.lock; not here")


@needs("mlflow")
def test_mlflow_has_the_runs_losses(train, tmp_path):
    import mlflow

    where = {"MLFLOW_TRACKING_URI": f"file:{tmp_path}/ml", "MLFLOW_ALLOW_FILE_STORE": "true"}
    events = train("mlflow", **where)
    assert [note["type"] for note in named(events, "note")] == [""]
    client = mlflow.MlflowClient(where["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name(trackers.PROJECT).experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ("study cpu workers=0 rep1", "FINISHED")
    assert run.data.metrics["eval_loss"] == 1.5
    assert "later" not in run.data.metrics
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [one.step for one in losses] == [10, 20]
    assert run.data.params["per_device_train_batch_size"] == "4"


@needs("trackio")
def test_trackio_has_the_runs_losses(train, tmp_path, monkeypatch):
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    for module in (trackio.utils, trackio.sqlite_storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "db", raising=False)
    events = train("trackio")
    assert [note["type"] for note in named(events, "note")] == [""]
    (run,) = trackio.Api().runs(trackers.PROJECT)
    assert run.name == "study cpu workers=0 rep1"
    logs = SQLiteStorage.get_logs(trackers.PROJECT, run.name)
    assert [log["train/global_step"] for log in logs if "train/loss" in log] == [10, 20]


@needs("wandb")
def test_wandb_writes_a_run_that_can_be_sent_later(train, tmp_path):
    events = train("wandb", WANDB_MODE="offline")
    assert [note["type"] for note in named(events, "note")] == [""]
    (file,) = tmp_path.rglob("offline-run-*/run-*.wandb")
    stored = file.read_bytes()
    assert b"study cpu workers=0 rep1" in stored
    assert b"train/loss" in stored
    assert b"later" not in stored
