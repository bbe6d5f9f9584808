"""Settings of training, each through a real Trainer: what they do, and that they change no loss."""

import functools
from pathlib import Path

import pytest
import torch
from script_job import make_rank
from training_jobs import make_spec, named, read_events

from feedrate.jobs.trainer import shared_arguments


def spec_with(model=None, loader=None, kind="cpu", **train):
    """A spec of the tiny model with other settings."""
    train = {"learning_rate": 1e-3, **train}
    return make_spec(kind=kind, model=model, loader=loader, train=train)


@pytest.fixture(scope="module")
def trained(tiny_prepared, tmp_path_factory):
    """Train with settings, once with the same; the Trainer, and the losses of its steps."""

    @functools.cache
    def trained(**options):
        folder = tmp_path_factory.mktemp("trained")
        _, _, trainer = make_rank(spec_with(**options), tiny_prepared, folder)
        trainer.train()
        steps = named(read_events(folder / "events.jsonl"), "step")
        return trainer, [step["loss"] for step in steps]

    return trained


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("adamw_torch_loop", {"foreach": False, "fused": False}),
        ("adamw_torch_foreach", {"foreach": True, "fused": None}),
        ("adamw_torch_fused", {"fused": True}),
    ],
)
def test_optimizers_step_alike_and_are_what_was_asked_for(trained, optimizer, options):
    trainer, losses = trained(optimizer=optimizer)
    group = trainer.optimizer.optimizer.param_groups[0]
    assert {name: group[name] for name in options} == options
    assert losses == pytest.approx(trained()[1], rel=1e-4)
    decays = {group["weight_decay"] for group in trainer.optimizer.optimizer.param_groups}
    assert decays == {0.0}


@pytest.mark.parametrize("precision", ["bf16_full", "fp16_full"])
def test_half_precision_in_full_is_in_weights_gradients_and_states(trained, precision):
    trainer, losses = trained(precision=precision, learning_rate=1e-5)
    _, expected = trained(learning_rate=1e-5)
    dtype = torch.bfloat16 if precision == "bf16_full" else torch.float16
    weights = list(trainer.model.parameters())
    assert {weight.dtype for weight in weights} == {dtype}
    states = trainer.optimizer.optimizer.state
    assert {state["exp_avg"].dtype for state in states.values()} == {dtype}
    assert losses == pytest.approx(expected, rel=0.1)


def test_the_steps_of_a_recipe_reach_the_trainer(tiny_prepared, tmp_path):
    """Persistent workers, copies that do not block, the fused optimizer, views of buckets."""
    spec = spec_with(
        loader={"workers": 4, "persistent_workers": True, "non_blocking": True},
        optimizer="adamw_torch_fused",
        ddp_bucket_view=True,
    )
    _, _, trainer = make_rank(spec, tiny_prepared, tmp_path)
    loader = trainer.get_train_dataloader()
    assert loader.persistent_workers
    assert loader.num_workers == 4
    assert loader._non_blocking
    assert trainer.create_optimizer().defaults["fused"]
    assert trainer.accelerator.ddp_handler.to_kwargs()["gradient_as_bucket_view"]


def further_arguments(spec):
    """The arguments that a device gets only because of these settings."""
    always = shared_arguments(spec_with(), Path())
    given = shared_arguments(spec, Path())
    return {name: value for name, value in given.items() if name not in always}


def test_arguments_of_settings():
    assert further_arguments(spec_with(execution="compiled")) == {
        "torch_compile": True,
        "torch_compile_mode": "default",
    }
    graphs = further_arguments(spec_with(kind="cuda", execution="cuda_graphs", precision="fp16"))
    assert graphs == {"fp16": True, "torch_compile": True, "torch_compile_mode": "reduce-overhead"}
    others = further_arguments(spec_with(loader={"non_blocking": True}, ddp_bucket_mb=50))
    assert others == {"accelerator_config": {"non_blocking": True}, "ddp_bucket_cap_mb": 50}
