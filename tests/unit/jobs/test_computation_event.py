"""The `computation` event is read from the model and the optimizer, not from settings."""

from collections import Counter, defaultdict

import pytest
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

from feedrate.jobs.job_setup import describe_computation
from feedrate.jobs.train import digest_weights, running_optimizer


class Float8Linear(torch.nn.Linear):
    """Has the name of torchao's."""


def linear():
    return torch.nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("model", "mixed", "precision"),
    [
        (linear(), "no", "fp32"),
        (linear(), "bf16", "bf16"),
        (linear().bfloat16(), "bf16", "bf16_full"),
        (linear().half(), "no", "fp16_full"),
        (torch.nn.Sequential(Float8Linear(4, 4)), "bf16", "fp8"),
    ],
)
def test_the_precision_is_that_of_layers_weights_and_autocast(model, mixed, precision):
    rounded = "tf32" if precision == "fp32" else precision
    for fp32, expected in (("ieee", precision), ("tf32", rounded), ("ieee+tf32", precision)):
        assert describe_computation(model, mixed, fp32)["precision"] == expected, fp32


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
    optimizer = torch.optim.AdamW(linear().parameters(), **options)
    assert running_optimizer(optimizer) == name
    assert running_optimizer(AcceleratedOptimizer(optimizer)) == name


def test_weights_that_differ_by_one_step_have_another_digest():
    model = linear()
    before = digest_weights(model)
    assert digest_weights(model) == before
    with torch.no_grad():
        model.weight += 1e-6
    assert digest_weights(model) != before


def test_graphs_that_torch_compiled_and_recorded_are_counted(monkeypatch):
    """torch counts no skip where a graph of the forward pass rules out the backward pass's."""
    torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(1) + 1)
    before = describe_computation(linear(), "no", None)["compiled_graphs"]
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    assert describe_computation(linear(), "no", None)["compiled_graphs"] > before
    counts = defaultdict(Counter, stats=Counter(unique_graphs=1), inductor=Counter())
    monkeypatch.setattr("torch._dynamo.utils.counters", counts)
    assert describe_computation(linear(), "no", None)["recorded_graphs"] is False
    counts["inductor"]["cudagraph_recorded_non_static_inputs"] += 0  # one without such inputs
    assert describe_computation(linear(), "no", None)["recorded_graphs"] is True
