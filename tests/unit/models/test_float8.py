"""Layers in float8: which parts are turned, and what a stand-in for torchao is told.

torchao is installed on GPU nodes alone; the stand-in turns nothing.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from feedrate.jobs.train import cast_for_training
from feedrate.models.layers import use_float8
from tiny_spec import tiny_spec


def make_spec(kind="cuda", **train):
    return tiny_spec(
        device=kind, kind=kind, model={"name": "vit"}, train={"precision": "bf16", **train}
    )


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(32, width)
        self.norm = torch.nn.LayerNorm(32)


@pytest.fixture
def torchao(monkeypatch):
    """Notes the names of the parts that it was asked to turn, and with which options."""
    seen = SimpleNamespace(parts=[], options={})

    def convert(model, *, module_filter_fn, config):
        seen.options = config
        seen.parts += [n for n, part in model.named_modules() if module_filter_fn(part, n)]

    package, module = ModuleType("torchao"), ModuleType("torchao.float8")
    package.__spec__ = SimpleNamespace()
    module.convert_to_float8_training = convert
    module.Float8LinearConfig = lambda **options: options
    monkeypatch.setitem(sys.modules, "torchao", package)
    monkeypatch.setitem(sys.modules, "torchao.float8", module)
    return seen


def test_linear_parts_of_layers_are_turned_and_heads_are_not(torchao):
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), Layer(48), Layer(64), Layer(20))
    assert use_float8(model, (Layer,), emulate=True) == 2
    assert torchao.parts == ["1.linear", "2.linear"]
    assert torchao.options == {"emulate": True, "pad_inner_dim": True}


def test_a_model_in_which_nothing_fits_is_refused(torchao):
    with pytest.raises(ValueError, match="multiples of 16"):
        use_float8(torch.nn.Sequential(Layer(20)), (Layer,))
    assert torchao.parts == []


@pytest.mark.parametrize(
    ("kind", "precision", "parts"),
    [
        ("cuda", "fp8", ["0.linear"]),
        ("cuda", "bf16", []),
        ("hpu", "fp8", []),  # Gaudi's software does it itself
    ],
)
def test_a_job_turns_its_model_where_it_is_asked_to(torchao, kind, precision, parts):
    model = torch.nn.Sequential(Layer(32))
    cast_for_training(model, make_spec(kind, precision=precision), (Layer,))
    assert torchao.parts == parts
    assert {value.dtype for value in model.parameters()} == {torch.float32}
