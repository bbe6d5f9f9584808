"""Inference in the configuration: the task, its settings, and cells for some devices alone."""

from inference_study import STUDY

from feedrate.config.plan import make_plan


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
