"""The inference job: every head, precision and preprocessing, from the spec to checked numbers."""

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from record_builder import a_device
from training_jobs import FIRST_PASSES, PASSES, inference_spec, named, one, read_events, write_spec

from feedrate.config.errors import ConfigError
from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.devices.base import UnsupportedError, adapter
from feedrate.devices.kinds import cpu
from feedrate.jobs import infer as passes
from feedrate.jobs.events import EventLog
from feedrate.jobs.infer import COMPILED, HEADERS, compiling_anew, time_passes
from feedrate.models.build import ModelError, build_bare
from feedrate.models.flops import count_flops
from feedrate.results import conformity
from feedrate.results.assemble import build_record


@pytest.mark.parametrize("preprocessing", ["out", "in"])
@pytest.mark.parametrize(
    ("model", "head"),
    [("bridgetower", "contrastive"), ("bridgetower", "matching"), ("clip", "contrastive")],
)
def test_every_head_is_timed_with_and_without_preprocessing(infer, model, head, preprocessing):
    events = infer(model=model, head=head, preprocessing=preprocessing)
    steps = named(events, "step")
    assert [(s["step"], s["samples"], s["warmup"]) for s in steps] == [
        (number, 2, number <= FIRST_PASSES) for number in range(1, PASSES + 1)
    ]
    assert all(step["finite"] is True and step["loss"] is None for step in steps)
    window, inside = one(events, "window"), steps[FIRST_PASSES:]
    assert (window["first_step"], window["last_step"], window["steps"]) == (
        FIRST_PASSES + 1,
        PASSES,
        3,
    )
    assert window["samples"] == 6
    assert window["wall_s"] == pytest.approx(sum(step["step_s"] for step in inside))
    assert window["data_wait_s"] == pytest.approx(sum(step["data_wait_s"] for step in inside))
    assert window["paused_s"] > 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_full"])
def test_the_precision_that_ran_is_reported(infer, monkeypatch, precision):
    monkeypatch.setattr(cpu.DeviceAdapter, "fp32", lambda _: "ieee")
    events = infer(precision=precision)
    assert one(events, "computation")["precision"] == precision
    assert one(events, "strategy")["fp32"] == "ieee"


def test_an_autocast_that_does_nothing_is_seen(infer, monkeypatch):
    monkeypatch.setattr(cpu.DeviceAdapter, "autocast", lambda *_: nullcontext())
    assert one(infer(precision="bf16"), "computation")["precision"] == "fp32"


def test_graphs_that_torch_compiled_are_counted(infer, monkeypatch):
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, mode: original(model, backend="eager"))
    eager, compiled = (
        named(infer(model="clip", execution=mode), "computation")[-1]["compiled_graphs"]
        for mode in ("eager", "compiled")
    )
    assert compiled > eager


def test_what_this_very_device_cannot_do_is_refused(infer, monkeypatch):
    """As bf16 on a T4; training opens the device in the same way."""

    def refuse(_device, settings):
        raise UnsupportedError(f"no {settings.train.precision} here")

    monkeypatch.setattr(cpu.DeviceAdapter, "check", refuse)
    with pytest.raises(UnsupportedError, match="no bf16 here"):
        infer(precision="bf16")


def test_flops_are_those_of_a_forward_pass(infer, tiny_prepared):
    """About a third of a training step's, and half of what is left for the backward pass."""
    settings = ModelSettings(name="bridgetower", size="tiny")
    whole = count_flops(build_bare(settings, LoaderSettings(), tiny_prepared), max_tokens=6)
    model = one(infer(), "model")
    assert 0.32 * whole < model["flops_per_sample"] < 0.36 * whole
    assert model["made_on"] == "cpu"


def watch_requests(monkeypatch, seen):
    """Call `seen` with each request that a job takes."""
    make = passes.make_requests

    def make_watched(*arguments, **options):
        requests = make(*arguments, **options)

        def taken():
            batch = requests()
            seen(batch)
            return batch

        return taken

    monkeypatch.setattr(passes, "make_requests", make_watched)


def test_the_same_seed_asks_for_the_same_and_another_for_others(infer, monkeypatch):
    asked = []
    watch_requests(monkeypatch, lambda batch: asked.append(batch["input_ids"].tolist()))
    for seed in (7, 7, 8):
        infer(inference_spec(seed=seed))
    first, again, other = asked[:PASSES], asked[PASSES : 2 * PASSES], asked[2 * PASSES :]
    assert first == again
    assert first != other


def test_inputs_are_the_same_whether_they_lie_ready_or_not(infer, monkeypatch):
    asked = {"out": [], "in": []}
    watch_requests(monkeypatch, lambda batch: asked[name].append(batch["pixel_values"]))
    for name in ("out", "in"):
        infer(preprocessing=name)
    for ready, prepared in zip(asked["out"][:4], asked["in"][:4], strict=True):
        assert torch.equal(ready, prepared)
    assert torch.equal(asked["out"][4], asked["out"][0]), "four lie ready, taken in turn"
    assert not torch.equal(asked["in"][4], asked["in"][0])


class Slow(torch.nn.Module):
    """Answers after a known time, at the third call with what is not a number."""

    calls = 0

    def forward(self, x, **_):
        self.calls += 1
        time.sleep(0.02)
        assert torch.is_inference_mode_enabled()
        return {"answer": x / 0 if self.calls == 3 else x, "other": x}


def test_a_pass_is_timed_from_request_to_answer(tmp_path):
    def requests():
        time.sleep(0.03)
        return {"x": torch.ones(2)}

    device, log = adapter("cpu"), EventLog(tmp_path, 0)
    start_s = time.perf_counter()
    time_passes(inference_spec(), device, log, Slow(), ("answer",), requests)
    whole_s = time.perf_counter() - start_s
    steps = named(read_events(tmp_path / "events.jsonl"), "step")
    assert all(step["step_s"] >= 0.05 and step["data_wait_s"] >= 0.03 for step in steps)
    assert sum(step["step_s"] for step in steps) < whole_s
    assert [step["finite"] for step in steps] == [True, True, False, True, True]


def test_what_earlier_runs_compiled_serves_no_later_one(tmp_path):
    from torch._inductor import codecache

    before = [getattr(codecache, name) for name in HEADERS]
    with compiling_anew(tmp_path):
        assert Path(os.environ[COMPILED]).parent == tmp_path
        for name in HEADERS:
            assert Path(getattr(codecache, name)).is_relative_to(os.environ[COMPILED])
    assert [getattr(codecache, name) for name in HEADERS] == before
    assert list(tmp_path.iterdir()) == []


REFUSED = [
    ({"execution": "cuda_graphs"}, UnsupportedError, "cuda_graphs is not available on cpu"),
    ({"precision": "fp16"}, UnsupportedError, "precision: fp16 is not available on cpu"),
    ({"model": "clip", "head": "matching"}, ModelError, "'matching': clip has contrastive"),
    ({"model": "vit"}, ModelError, "'contrastive': vit has none"),
    ({"gradient_accumulation": 2}, UnsupportedError, "gradient_accumulation: 2 .*leave it 1"),
    ({"loader": {"workers": 1}}, UnsupportedError, "loader.workers: 1 is for training"),
    ({"protocol": {"evaluate": True}}, UnsupportedError, "protocol.evaluate: True"),
    ({"loader": {"decode": "cache"}, "preprocessing": "in"}, UnsupportedError, "decode: cache"),
    ({"batch_size": 500}, ConfigError, "train.batch_size: 500 .*has 24"),
]


@pytest.mark.parametrize(("settings", "error", "words"), REFUSED)
def test_what_cannot_be_timed_is_refused_in_a_sentence(infer, settings, error, words):
    with pytest.raises(error, match=words) as refusal:
        infer(**settings)
    assert "\n" not in str(refusal.value)


def test_a_run_becomes_a_checked_record(infer, tmp_path, monkeypatch):
    monkeypatch.setattr(conformity, "FOREIGN_POSSIBLE", 2.0)  # other tests may run beside it
    spec = inference_spec(preprocessing="in")
    events = infer(spec)
    run = write_spec(tmp_path / "run", spec)
    outcome = {
        "schema": 1,
        "status": "ok",
        "attempt": 1,
        "data_digest": one(events, "data")["digest"],
        "machine_before": {"other_training_jobs": 0},
    }
    (run / "outcome.json").write_text(json.dumps(outcome))
    record = build_record(run, a_device())
    assert record.status == "ok", record.cause
    assert [check.name for check in record.checks if not check.passed] == []
    assert "answers_finite" in {check.name for check in record.checks}
    assert "loss_finite" not in {check.name for check in record.checks}
    measured = record.measurement
    assert measured is not None
    assert (measured.steps, measured.samples, measured.loss_last) == (3, 6, None)
    assert measured.samples_per_s == pytest.approx(6 / measured.wall_s)
    times = [step["step_s"] for step in named(events, "step")[FIRST_PASSES:]]
    assert measured.step_time_max_s == max(times)
    assert sorted(times)[1] < measured.step_time_p95_s < max(times)
    assert measured.first_step_s == named(events, "step")[0]["step_s"]
    assert record.provenance.bf16_instructions == one(events, "start")["bf16_instructions"]
