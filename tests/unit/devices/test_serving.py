"""How adapters serve a model whose forward passes alone are run."""

import sys
from types import ModuleType

import pytest
import torch

from feedrate.config.settings import HpuSettings, ModelSettings, Settings, TrainSettings
from feedrate.devices import host
from feedrate.devices.base import UnsupportedError, adapter
from feedrate.devices.host import bf16_instructions
from feedrate.devices.kinds import hpu


def settings(hpu=None, **train) -> Settings:
    return Settings(
        model=ModelSettings(name="bridgetower", size="tiny"),
        train=TrainSettings(**{"precision": "fp32", **train}),
        hpu=HpuSettings(**(hpu or {})),
    )


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", torch.float32),
        ("bf16", torch.bfloat16),
        ("bf16_full", torch.float32),  # the weights say it
    ],
)
def test_operations_run_in_the_precision_asked_for(precision, expected):
    layer = torch.nn.Linear(4, 4)
    with torch.inference_mode(), adapter("cpu").autocast(precision):
        assert layer(torch.ones(1, 4)).dtype == expected
    assert layer.weight.dtype == torch.float32


@pytest.fixture
def gaudi(monkeypatch):
    """An HPU adapter on functions of our own; what they were asked."""
    asked: list[str] = []
    functions = ModuleType("hpu")
    functions.wrap_in_hpu_graph = lambda model: asked.append("graph") or model  # type: ignore[attr-defined]
    made = hpu.DeviceAdapter.__new__(hpu.DeviceAdapter)
    made._hpu = functions
    made.device = torch.device("cpu")
    monkeypatch.setattr(torch, "compile", lambda model, backend: asked.append(backend) or model)
    return made, asked


@pytest.mark.parametrize(
    ("hpu_settings", "expected"),
    [
        ({}, ["graph"]),  # as evaluation: in lazy mode wherever it is not turned off
        ({"hpu_graphs_for_inference": False}, []),
        ({"hpu_graphs_for_inference": True}, ["graph"]),
        ({"mode": "eager"}, []),
        ({"mode": "compile"}, ["hpu_backend"]),
    ],
)
def test_gaudi_has_its_own_settings_for_graphs_and_compilation(gaudi, hpu_settings, expected):
    device, asked = gaudi
    layer = torch.nn.Linear(4, 4)
    assert device.serve(layer, settings(hpu_settings)) is layer
    assert asked == expected
    assert "habana_frameworks" not in sys.modules


@pytest.mark.parametrize("precision", ["fp8", "bf16_full"])
def test_gaudi_refuses_precisions_that_it_only_trains_in(gaudi, precision):
    with pytest.raises(UnsupportedError, match=f"train.precision: {precision} is not available"):
        gaudi[0].serve(torch.nn.Linear(4, 4), settings(precision=precision))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx512_bf16 amx_bf16 amx_tile", ["amx_bf16", "avx512_bf16"]),
        ("fpu avx512f avx512_bf16", ["avx512_bf16"]),
        ("fpu avx2 avx512_bf16x", []),
    ],
)
def test_the_instructions_for_bf16_are_read_from_the_processors_flags(
    tmp_path, monkeypatch, flags, expected
):
    monkeypatch.setattr(host, "PROC", tmp_path)
    assert bf16_instructions() == []
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t: x\n")
    assert bf16_instructions() == expected
