"""A tiny BridgeTower through the real GaudiTrainer, from the spec to the record."""

import json
import math
import shutil

import pytest
from gaudi_software import FULL, Job, failed_checks, make_spec, run_inside

from feedrate.results.trainer_logs import read_trainer


def test_a_job_ends_in_a_valid_record(full_job):
    assert full_job.exit_code == 0, full_job.stderr
    record = full_job.record()
    assert failed_checks(record) == {}
    assert record.status == ("ok" if all(c.passed for c in record.checks) else "invalid")
    measured = record.measurement
    assert (measured.steps, measured.warmup_steps, measured.samples) == (3, 1, 12)
    assert measured.samples_per_s == pytest.approx(12 / measured.wall_s)
    assert 0 < measured.data_wait_share < 1
    assert measured.peak_memory_gib > 0.1
    assert measured.paused_s > 0, "a checkpoint inside the window is taken out"
    assert record.ceilings.loader_samples_per_s > 0
    assert record.ceilings.model_samples_per_s > 0
    packages = record.provenance.packages
    assert packages["optimum-habana"] == "1.21.2"
    assert packages["habana-torch-plugin"] == "1.24.0.0"
    assert packages["transformers"].startswith("4.55.")
    assert record.provenance.device_model == "GAUDI2"


def test_the_trainers_own_figures_stand_beside_ours(full_job):
    trainer, told = full_job.record().trainer, full_job.metrics("train_results.json")
    assert trainer.library == "optimum-habana 1.21.2"
    assert trainer.samples_per_s == told["train_samples_per_second"]
    assert trainer.steps_per_s == told["train_steps_per_second"]
    assert trainer.runtime_s == told["train_runtime"]
    assert trainer.loss == told["train_loss"]
    assert trainer.peak_memory_gib == told["max_memory_allocated (GB)"]
    assert trainer.total_flos > 0
    # Its rate leaves out the warm-up step, as ours: 3 steps of 4 samples.
    assert trainer.samples_per_s / trainer.steps_per_s == pytest.approx(4, rel=0.01)


def test_the_loss_of_a_step_is_the_mean_of_its_micro_steps(full_job):
    """Two pairs told apart by chance give ln 2, whatever the accumulation."""
    losses = [step["loss"] for step in full_job.events("step")]
    assert len(losses) == 4
    assert all(loss == pytest.approx(math.log(2), abs=0.3) for loss in losses)
    assert full_job.metrics("train_results.json")["train_loss"] == pytest.approx(
        sum(losses) / 4, abs=0.01
    )


def test_evaluation_and_prediction_have_figures(full_job):
    evaluation = full_job.record().evaluation
    for prefix, rows in (("eval", 7), ("predict", 6)):
        assert evaluation[f"{prefix}_samples"] == rows
        assert evaluation[f"{prefix}_loss"] > 0
        assert 0 <= evaluation[f"{prefix}_image_to_text_recall_at_1"] <= 1
        # With the training's warm-up steps left out, this library's rate would be below zero.
        assert evaluation[f"{prefix}_samples_per_second"] > 0
    assert not [key for key in evaluation if key.endswith("_end_time")]


def test_a_model_is_scored_before_and_after_training_also_on_winoground(full_job):
    before, after = full_job.events("evaluation")
    assert (before["moment"], after["moment"]) == ("before", "after")
    scores = {(one.on, one.metric): one for one in full_job.record().scores}
    assert {on for on, _ in scores} == {"validation", "test", "winoground"}
    for one in scores.values():
        assert 0 <= one.before <= 1
        assert 0 <= one.after <= 1
    assert scores["winoground", "group_score"].n == 2
    assert full_job.record().winoground == "generated"
    assert not [note for note in full_job.events("note") if "evaluation" in note["about"]]


def test_training_goes_on_after_an_evaluation_with_graphs(full_job):
    """Such graphs replace the model's forward pass: the ceilings after it would not train."""
    kinds = {event["kind"] for event in full_job.events("ceiling")}
    assert kinds == {"live", "loader", "model"}, full_job.events("note")


def test_the_graphs_of_an_evaluation_leave_the_device():
    """The ceilings after it would have less memory."""
    assert run_inside("graphs_left.py") == {"attributes": [], "answer": False}


def test_weights_are_saved_as_safetensors(full_job):
    model = full_job.out / "trainer/checkpoint-4"
    assert (model / "model.safetensors").stat().st_size > 10**6
    assert json.loads((model / "config.json").read_text())["model_type"] == "bridgetower"


def test_every_kind_of_output_is_read_alike(full_job, tmp_path):
    """JSON files and TensorBoard of optimum-habana, each where it is alone."""
    told = full_job.record().trainer
    shutil.copytree(full_job.out / "trainer/runs", tmp_path / "board/runs")
    board = read_trainer(tmp_path / "board")
    files = read_trainer(full_job.out / "trainer")
    for found in (board, files):
        for name in ("samples_per_s", "steps_per_s", "runtime_s", "loss", "peak_memory_gib"):
            # Each output reads the peak itself, the last after the others.
            off = {"abs": 0.05} if name == "peak_memory_gib" else {"rel": 1e-4}
            assert getattr(found, name) == pytest.approx(getattr(told, name), **off), name


STOCK = {"trainer": "transformers", "mode": "eager", "fused_adam": False, "fused_clip_norm": False}


def check_stock(job):
    """The job trained with the Trainer of transformers, and its record is valid."""
    assert job.exit_code == 0, job.stderr
    record = job.record()
    assert failed_checks(record) == {}
    assert record.trainer.library.startswith("transformers 4.55.")
    assert record.spec.settings.hpu.trainer == "transformers"
    losses = [step["loss"] for step in job.events("step")]
    assert all(loss == pytest.approx(math.log(2), abs=0.3) for loss in losses)
    kinds = {event["kind"] for event in job.events("ceiling")}
    assert {"loader", "model"} <= kinds, job.events("note")
    assert not (job.out / "trainer/gaudi_config.json").exists()
    return record


def test_transformers_own_trainer_is_a_second_library(prepared, tmp_path, full_job):
    """The same samples and weights give the same losses as with optimum-habana."""
    spec = make_spec(hpu=STOCK, **FULL, loader={"workers": 1})
    job = Job(spec, prepared, tmp_path / "rep1")
    record = check_stock(job)
    assert (record.evaluation["eval_samples"], record.evaluation["predict_samples"]) == (7, 6)
    ours, theirs = ([s["loss"] for s in one.events("step")] for one in (job, full_job))
    assert ours == pytest.approx(theirs, abs=0.02)
    # It evaluates without graphs, the other with graphs that write all answers to one place.
    ours, theirs = (one.record().evaluation for one in (job, full_job))
    recalls = {name for name in ours if name.endswith("_recall_at_1")}
    assert len(recalls) == 4
    assert {name: ours[name] for name in recalls} == {name: theirs[name] for name in recalls}


def test_transformers_own_trainer_runs_compiled_and_on_two_ranks(prepared, tmp_path):
    """CLIP: tracing has fewer layers to follow than in BridgeTower."""
    compiled = {**STOCK, "mode": "compile"}
    spec = make_spec(
        count=2, launcher="torchrun", hpu=compiled, model={"name": "clip"}, ceiling_s=0.05
    )
    job = Job(spec, prepared, tmp_path / "rep1")
    assert check_stock(job).measurement.samples == 12
    (ran,) = job.events("strategy")
    assert ran["name"] == "ddp"


def test_the_last_batch_is_filled_and_a_run_is_traced(prepared, tmp_path):
    """The stand-in has no profiler, as a torch that is not Intel's."""
    spec = make_spec(
        loader={"last_batch": "fill"}, train={"batch_size": 7}, profile_steps=1, ceiling_s=0.05
    )
    job = Job(spec, prepared, tmp_path / "rep1")
    assert job.exit_code == 0, job.stderr
    record = job.record()
    assert [step["samples"] for step in job.events("step")] == [7, 7, 7, 7]
    assert record.measurement.samples == 21
    assert (job.out / "trace.json.gz").exists()
    assert record.provenance.trace.startswith("trace.json.gz; no events of HPU")


LAZY = {
    "hpu_graphs_for_training": True,
    "pipelining_fwd_bwd": True,
    "non_blocking_data_copy": True,
    "use_dynamic_shapes": True,
    "adjust_throughput": True,
    "sdp_on_bf16": True,
}
NOT_FUSED = {"mode": "eager", "fused_adam": False, "fused_clip_norm": False}
COMPILED = {"mode": "compile", "use_compiled_autograd": True}


@pytest.mark.parametrize(
    ("hpu", "accumulation", "model"),
    [(LAZY, 2, "bridgetower"), (NOT_FUSED, 1, "bridgetower"), (COMPILED, 1, "clip")],
    ids=["lazy", "eager", "compile"],
)
def test_other_settings_train_too_and_learn_the_same(prepared, tmp_path, hpu, accumulation, model):
    train = {"gradient_accumulation": accumulation}
    spec = make_spec(hpu=hpu, train=train, model={"name": model}, ceiling_s=0.05)
    job = Job(spec, prepared, tmp_path / "rep1")
    assert job.exit_code == 0, job.stderr
    assert failed_checks(job.record()) == {}
    (ran,) = job.events("computation")
    replayed = (8, 0) if hpu is LAZY else (0, 0)
    assert (ran["replayed_passes"], ran["missed_passes"]) == replayed
    (start,) = job.events("start")
    assert start["environment"]["PT_HPU_LAZY_MODE"] == ("1" if hpu is LAZY else "0")
    losses = [step["loss"] for step in job.events("step")]
    assert all(loss == pytest.approx(math.log(2), abs=0.3) for loss in losses)
    kinds = {event["kind"] for event in job.events("ceiling")}
    assert kinds == {"live", "loader", "model"}, job.events("note")


def test_a_pass_that_missed_the_graphs_invalidates_the_run(prepared, tmp_path):
    """The last batch is smaller, and all graphs are taken. GaudiTrainer's own order of 24 rows
    would fill it: the order is ours."""
    loader, train = {"last_batch": "keep"}, {"batch_size": 7}
    environment = {"FEEDRATE_STANDIN_GRAPHS": "1"}
    hpu = {"hpu_graphs_for_training": True}
    spec = make_spec(hpu=hpu, loader=loader, train=train, environment=environment)
    job = Job(spec, prepared, tmp_path / "rep1")
    assert job.exit_code == 0, job.stderr
    (ran,) = job.events("computation")
    assert (ran["replayed_passes"], ran["missed_passes"]) == (3, 1)
    assert "computation" in failed_checks(job.record())
    assert [step["samples"] for step in job.events("step")] == [7, 7, 7, 3]
    assert job.record().measurement.samples == 17
