"""What the Trainer says about its own training, from its files."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.jobs.events import Trainer
from feedrate.results.trainer_logs import (
    TrainerFigures,
    fallback_warning,
    not_finite,
    number,
    read_evaluations,
    read_scalars,
    read_trainer,
)

GAUDI = {
    "epoch": 5.0,
    "max_memory_allocated (GB)": 63.55,
    "memory_allocated (GB)": 16.5,
    "total_flos": 1.5e18,
    "total_memory_available (GB)": 94.62,
    "train_loss": 0.05,
    "train_runtime": 294.8,
    "train_samples_per_second": 847.7,
    "train_steps_per_second": 2.2,
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (2.5, 2.5),
        ("2.5", 2.5),
        (" 1e3 ", 1000.0),
        ("nan", None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ([1], None),
        ("9" * 5000, None),
        (10**400, None),
    ],
)
def test_numbers_as_logs_write_them(value, expected):
    assert number(value) == expected


def test_figures_keep_the_trainers_own_words(tmp_path):
    found = read_trainer(tmp_path, Trainer(rank=0, library="optimum-habana 1.7", metrics=GAUDI))
    assert found.samples_per_s == 847.7
    assert found.steps_per_s == 2.2
    assert found.runtime_s == 294.8
    assert found.peak_memory_gib == 63.55
    assert found.memory_gib == 16.5
    assert found.total_flos == 1.5e18
    assert found.library == "optimum-habana 1.7"


def test_a_job_that_ended_before_its_event_has_figures_in_files(tmp_path):
    (tmp_path / "train_results.json").write_text(json.dumps(GAUDI))
    (tmp_path / "trainer_state.json").write_text(json.dumps({"total_flos": 1.0}))
    (tmp_path / "all_results.json").write_text(
        json.dumps(GAUDI | {"max_memory_allocated (GB)": 80.0, "eval_loss": 0.1})
    )
    figures = read_trainer(tmp_path)
    assert (figures.samples_per_s, figures.total_flos) == (847.7, 1.5e18)
    assert figures.peak_memory_gib == 63.55, "evaluations overwrite it in all_results.json"


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=200))
def test_arbitrary_json_files_never_crash(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("trainer")
    for name in ("trainer_state.json", "all_results.json", "eval_results.json"):
        (folder / name).write_bytes(content)
    assert isinstance(read_trainer(folder), TrainerFigures)
    assert isinstance(read_evaluations(folder), dict)


def test_losses_and_gradients_that_are_no_numbers_are_named(tmp_path):
    history = [{"loss": 1.0, "grad_norm": 2.0}, {"loss": "inf", "grad_norm": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    figures = {"eval_loss": float("nan"), "eval_runtime": float("nan"), "epoch": 1.0}
    (tmp_path / "validation_results.json").write_text(json.dumps(figures))
    assert not_finite(tmp_path) == ["loss", "grad_norm", "eval_loss"]


def test_evaluations_of_all_spellings(tmp_path):
    (tmp_path / "validation_results.json").write_text('{"eval_loss": 0.5, "epoch": 1}')
    (tmp_path / "predict_results.json").write_text(
        '{"predict_loss": 0.25, "test_runtime": "2.5", "test_accuracy": NaN}'
    )
    assert read_evaluations(tmp_path) == {
        "eval_loss": 0.5,
        "predict_loss": 0.25,
        "predict_runtime": 2.5,
    }


def test_the_fallback_of_the_on_device_loader_is_seen():
    warning = "Using Pytorch native dataloader because: no module named habana_media"
    assert fallback_warning(f"x\nWARNING - {warning}.\ny") == warning
    assert fallback_warning("all is well") == ""


@pytest.fixture
def event_file(tmp_path):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "runs"))
    for step, tag, value in [
        (1, "train/loss", 2.0),
        (2, "train/loss", float("nan")),
        (3, "train/train_runtime", 12.5),
        (3, "train/train_samples_per_second", 40.25),
        (3, "eval/loss", 1.5),
    ]:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(step=step, summary=summary))
    writer.close()
    return next((tmp_path / "runs").iterdir())


def test_scalars_of_tensorboard(event_file):
    scalars = read_scalars(event_file)
    assert scalars["train/loss"] == 2.0
    assert scalars["train/train_runtime"] == 12.5


def test_a_truncated_event_file_gives_what_is_whole(event_file):
    whole = event_file.read_bytes()
    counts = []
    for size in range(0, len(whole), 7):
        event_file.write_bytes(whole[:size])
        counts.append(len(read_scalars(event_file)))
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 3


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=300))
def test_arbitrary_event_files_never_crash(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("tb") / "events.out.tfevents.1"
    path.write_bytes(content)
    assert read_scalars(path) == {}
