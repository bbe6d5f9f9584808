"""Inference in the configuration: the task, its settings, and cells for some devices alone."""

from feedrate.config.plan import make_plan

STUDY = """
title: Answers
question: How fast?
task: inference
source: {title: Our own question}
settings:
  model: {name: bridgetower, size: tiny}
  inference: {preprocessing: out}
  loader: {decode: host, workers: 0, max_tokens: 32}
protocol: {steps: 5, warmup_steps: 1, repeats: 1, evaluate: false}
factors:
  head:
    bundles:
      contrastive: {inference.head: contrastive}
      clip: {model.name: clip, loader.max_tokens: 77}
    levels: [contrastive, clip]
  batch: {sets: train.batch_size, levels: [1, 64]}
baseline: {head: contrastive, batch: 1}
exclude:
  - {levels: {batch: 64}, unless_able: large_models, why: It takes long on a small device.}
"""


def planned(copy, text=STUDY, **config):
    copy.write("studies/answers.yaml", text)
    return make_plan(copy.load(studies=["answers"], **config))


def test_cells_are_left_out_on_devices_that_lack_a_capability(copy):
    plan = planned(copy, devices=["cpu", "h100"])
    batches = {
        device: {s.settings.train.batch_size for s in plan.runs.values() if s.device == device}
        for device in ("cpu", "h100")
    }
    assert batches == {"cpu": {1}, "h100": {1, 64}}
    assert all(cell.lacks != "large_models" for cell in plan.unsupported)


def test_a_level_with_another_model_starts_from_weights_of_its_own(copy):
    config = {"checkpoint": "some/weights", "checkpoint_revision": "abc"}
    for chosen, expected in (
        (None, {"bridgetower": "some/weights", "clip": None}),
        ("bridgetower", {"bridgetower": "some/weights", "clip": None}),
        ("clip", {"bridgetower": None, "clip": "some/weights"}),
    ):
        runs = planned(copy, **config, checkpoint_model=chosen).runs.values()
        models = [spec.settings.model for spec in runs]
        assert {model.name: model.checkpoint for model in models} == expected
        assert all((model.revision == "abc") is bool(model.checkpoint) for model in models)
