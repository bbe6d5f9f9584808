"""What the `computation` event says is read from the model and the optimizer, not from settings."""

from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

from feedrate.jobs.train import describe_computation, digest_weights, running_optimizer


def trainer(model=None, mixed="no", **options):
    model = model or torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    accelerator = SimpleNamespace(mixed_precision=mixed)
    return SimpleNamespace(model=model, optimizer=optimizer, accelerator=accelerator)


def precision_of(made, single):
    return describe_computation(made, single, whole=False)["precision"]


class Float8Linear(torch.nn.Linear):
    """Has the name of torchao's."""


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        (trainer(), "fp32"),
        (trainer(mixed="bf16"), "bf16"),
        (trainer(torch.nn.Linear(4, 4).bfloat16(), mixed="bf16"), "bf16_full"),
        (trainer(torch.nn.Linear(4, 4).half()), "fp16_full"),
        (trainer(torch.nn.Sequential(Float8Linear(4, 4)), mixed="bf16"), "fp8"),
    ],
)
def test_the_precision_is_that_of_layers_weights_and_accelerator(made, precision):
    assert precision_of(made, "ieee") == precision
    rounded = "tf32" if precision == "fp32" else precision
    assert precision_of(made, "tf32") == rounded
    assert precision_of(made, "ieee+tf32") == precision, "half done is not done"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "AdamW"),
        ({"fused": True}, "AdamW fused"),
        ({"foreach": True}, "AdamW foreach"),
        ({"foreach": False, "fused": False}, "AdamW loop"),
    ],
)
def test_the_optimizer_is_named_through_accelerates_wrapper(options, name):
    Accelerator(cpu=True)
    made = trainer(**options).optimizer
    assert running_optimizer(made) == name
    assert running_optimizer(AcceleratedOptimizer(made)) == name


def test_weights_that_differ_by_one_step_have_another_digest():
    model = torch.nn.Linear(4, 4)
    before = digest_weights(model)
    assert digest_weights(model) == before
    with torch.no_grad():
        model.weight += 1e-6
    assert digest_weights(model) != before


def test_a_compiled_graph_is_counted_and_a_part_of_the_weights_is_not_compared():
    before = describe_computation(trainer(), None, whole=False)
    assert before["weights"] == ""
    torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(1) + 1)
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    after = describe_computation(trainer(), None, whole=True)
    assert after["compiled_graphs"] > before["compiled_graphs"]
    assert after["weights"]


def test_a_cuda_graph_counts_once_torch_has_recorded_it(monkeypatch):
    """torch counts no skip where a graph of the forward pass rules out the backward pass's."""
    counted = defaultdict(Counter, stats=Counter(unique_graphs=1), inductor=Counter())
    monkeypatch.setattr("torch._dynamo.utils.counters", counted)
    assert describe_computation(trainer(), None, whole=False)["recorded_graphs"] is False
    counted["inductor"]["cudagraph_recorded_non_static_inputs"] += 0  # one without such inputs
    assert describe_computation(trainer(), None, whole=False)["recorded_graphs"] is True
