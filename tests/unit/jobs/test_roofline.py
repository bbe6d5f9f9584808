"""Predicted rates: the work of a step as counted by hand, and the time that follows from it.

Whether a GPU takes that time, only a GPU can show: the study bridgetower-speedups compares them.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from feedrate.config.devices import Peak
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.data.manifest import MANIFEST
from feedrate.jobs import roofline
from feedrate.jobs.roofline import (
    LAUNCH_S,
    MEMORY_SHARE,
    PEAK_SHARE,
    Operation,
    PredictSettings,
    Roof,
    Step,
    UnknownError,
    fuse,
    predict,
    predict_rates,
    trace,
)
from feedrate.models.build import build_bare
from tiny_spec import tiny_spec

ROOT = Path(__file__).resolve().parents[3]
PEAKS = [
    Peak(precision="bf16", datasheet_tflops=100, achievable_tflops=50, source="a test"),
    Peak(precision="fp8", datasheet_tflops=200, source="a test"),
]
ROOF = Roof(peaks=PEAKS, memory_gb_per_s=1000 / MEMORY_SHARE)
"""Kernels reach 50 TFLOP/s in bf16 and 1000 GB/s."""
ROWS, WIDTH = 8, 32


class Chain(torch.nn.Module):
    """tanh, a multiplication, then exp and tanh: of ROWS x WIDTH values."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, pixel_values, **_):
        values = pixel_values.flatten(1)[:, :WIDTH].clone()
        return {"loss": torch.tanh(torch.exp(self.linear(torch.tanh(values)))).sum()}


def spec_of(kind="cuda", count=1, model=None, **train):
    train = {"batch_size": ROWS, "precision": "bf16", "optimizer": "adamw_torch_fused", **train}
    return tiny_spec(kind=kind, device="card", count=count, model=model, train=train)


def traced(model, **train):
    """The operations of a step of `model`, which sees pictures of 8 px."""
    built = SimpleNamespace(model=model, image_px=8, scores="retrieval", layers=(torch.nn.Linear,))
    return trace(built, spec_of(**train).settings)


def moved(operation):
    return sum(operation.reads.values()) + sum(operation.writes.values())


@pytest.fixture
def predicted(monkeypatch):
    """The prediction of a spec whose step has these operations, and 10 tensors of 1e9 bytes."""

    def predicted(operations, spec, roof=ROOF):
        step = Step(operations, gradients=set(), tensors=10, parameter_bytes=10**9)
        monkeypatch.setattr(roofline, "build_bare", lambda *_: None)
        monkeypatch.setattr(roofline, "trace", lambda *_: step)
        return predict(spec, roof, Path(), {})

    return predicted


def test_multiplications_are_counted_as_by_hand():
    step = traced(Chain(), precision="fp32")
    multiplied = [o for o in step.operations if o.flops]
    once = 2 * ROWS * WIDTH * WIDTH
    assert [o.flops for o in multiplied] == [once] * 2  # forward, and the weight's gradient
    assert {o.precision for o in multiplied} == {"fp32"}
    assert [moved(o) for o in multiplied] == [4 * (2 * ROWS * WIDTH + WIDTH * WIDTH)] * 2
    assert (step.tensors, step.parameter_bytes) == (1, 4 * WIDTH * WIDTH)


def test_autocast_multiplies_in_half_precision_and_casts_weights_and_gradients():
    plain, half = traced(Chain(), precision="fp32"), traced(Chain())
    assert {o.precision for o in half.operations if o.flops} == {"bf16"}
    assert len(half.operations) == len(plain.operations) + 3  # input, weight, its gradient


def test_fp8_reads_half_the_bytes_after_a_cast():
    half, eighth = traced(Chain()), traced(Chain(), precision="fp8")
    for two, one in zip(
        *([o for o in s.operations if o.flops] for s in (half, eighth)), strict=True
    ):
        assert one.precision == "fp8"
        assert sum(one.reads.values()) == sum(two.reads.values()) / 2
    assert len(eighth.operations) == len(half.operations) + 2


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_work_of_a_model_is_what_its_builder_counts(tiny_prepared, attention):
    spec = spec_of(model={"attention": attention})
    built = build_bare(spec.settings.model, spec.settings.loader, tiny_prepared)
    counted = built.count_flops(8)
    found = sum(o.flops for o in trace(built, spec.settings).operations) / ROWS
    # Fused kernels compute the attention's scores once more in the backward pass.
    assert counted <= found < 1.03 * counted


def test_the_image_towers_projections_stay_out_of_fp8(tiny_prepared):
    """torchao replaces modules; nn.MultiheadAttention multiplies without calling one."""
    spec = spec_of(precision="fp8")
    built = build_bare(spec.settings.model, spec.settings.loader, tiny_prepared)
    found = {o.precision for o in trace(built, spec.settings).operations if o.flops}
    assert found == {"fp8", "bf16"}


def test_compiled_operations_fuse_up_to_a_multiplication():
    """x -> a -> b -> multiplication -> c -> d, with `b` read again by d."""
    x, a, b, m, c, d = range(6)
    step = Step(
        [
            Operation(0, "", {x: 10}, {a: 10}),
            Operation(0, "", {a: 10}, {b: 10}),
            Operation(7, "bf16", {b: 10}, {m: 10}),
            Operation(0, "", {m: 10}, {c: 10}),
            Operation(0, "", {c: 10, b: 10}, {d: 10}),
        ],
        gradients={d},
        tensors=0,
        parameter_bytes=0,
    )
    before, multiplication, after = fuse(step)
    assert (before.reads, before.writes) == ({x: 10}, {b: 10}), "nothing else reads a"
    assert multiplication == step.operations[2]
    assert (after.reads, after.writes) == ({m: 10, b: 10}, {d: 10}), "d is kept, c is not"


def test_fusing_moves_fewer_bytes_and_does_the_same_work(tiny_prepared):
    spec = spec_of()
    built = build_bare(spec.settings.model, spec.settings.loader, tiny_prepared)
    step = trace(built, spec.settings)
    fused = fuse(step)
    assert sum(o.flops for o in fused) == sum(o.flops for o in step.operations)
    assert len(fused) < 0.7 * len(step.operations)
    assert sum(map(moved, fused)) < 0.9 * sum(map(moved, step.operations))


def test_a_kernel_takes_the_longer_of_its_two_times(predicted):
    """1 s of FLOPs with few bytes, 2 s of bytes with few FLOPs; the update moves 10 GB in 10 ms."""
    found = predicted(
        [
            Operation(50e12, "bf16", {1: 10**9}, {}),
            Operation(1e12, "bf16", {2: 10**12}, {3: 10**12}),
        ],
        spec_of(),
    )
    update_s = (7 + 3) * 1e9 / 1e12
    assert found["multiply_s"] == pytest.approx(1)
    assert found["move_s"] == pytest.approx(2 + update_s)
    assert found["samples_per_s"] == pytest.approx(ROWS / (3 + update_s))


def test_the_host_limits_where_launches_take_longer(predicted):
    operations = [Operation(0, "", {n: 1}, {}) for n in range(10_000)]
    eager = predicted(operations, spec_of())
    assert eager["launch_s"] == pytest.approx(10_000 * LAUNCH_S["eager"])
    assert eager["samples_per_s"] == pytest.approx(ROWS / eager["launch_s"])
    graphs = predicted(operations, spec_of(execution="cuda_graphs"))
    assert graphs["launch_s"] == 0
    assert graphs["samples_per_s"] == pytest.approx(ROWS / graphs["move_s"])


def test_a_peak_nobody_measured_is_a_share_of_the_data_sheets(predicted):
    work = [Operation(200e12, "fp8", {}, {})]
    found = predicted(work, spec_of(precision="fp8"))
    assert found["multiply_s"] == pytest.approx(1 / PEAK_SHARE)


def test_fp32_products_of_a_run_in_tf32_have_its_peak(predicted):
    peaks = [
        Peak(precision=name, achievable_tflops=tflops, source="a test")
        for name, tflops in (("fp32", 10), ("tf32", 50))
    ]
    work, roof = [Operation(50e12, "fp32", {}, {})], msgspec.structs.replace(ROOF, peaks=peaks)
    assert predicted(work, spec_of(precision="tf32"), roof)["multiply_s"] == pytest.approx(1)
    assert predicted(work, spec_of(precision="fp32"), roof)["multiply_s"] == pytest.approx(5)


def test_devices_work_in_parallel_and_copy_gradients_into_buckets(predicted):
    work = [Operation(50e12, "bf16", {}, {})]
    alone, eight, views = (
        predicted(work, spec)
        for spec in (spec_of(), spec_of(count=8), spec_of(count=8, ddp_bucket_view=True))
    )
    assert 7.9 < eight["samples_per_s"] / alone["samples_per_s"] < 8
    assert alone["move_s"] < views["move_s"] < eight["move_s"]


def test_micro_steps_repeat_the_model_and_not_the_update(predicted):
    work = [Operation(50e12, "bf16", {}, {})]
    one, two = (predicted(work, spec_of(gradient_accumulation=n)) for n in (1, 2))
    assert two["multiply_s"] == pytest.approx(2 * one["multiply_s"])
    assert two["move_s"] == pytest.approx(one["move_s"])


@pytest.mark.parametrize(
    ("spec", "roof", "lacks"),
    [
        (spec_of(precision="fp16"), ROOF, "no peak for fp16"),
        (spec_of(), Roof(peaks=PEAKS, memory_gb_per_s=None), "no memory bandwidth"),
        (spec_of(optimizer="adafactor"), ROOF, "train.optimizer: adafactor"),
        (spec_of(strategy="fsdp"), ROOF, "train.strategy: fsdp"),
    ],
)
def test_what_is_not_known_is_told_and_not_guessed(predicted, spec, roof, lacks):
    with pytest.raises(UnknownError, match=lacks):
        predicted([], spec, roof)


def test_a_model_whose_work_depends_on_the_data_is_told(monkeypatch):
    class Masked(Chain):
        def forward(self, pixel_values, **_):
            return {"loss": self.linear(pixel_values[torch.nonzero(pixel_values)]).sum()}

    built = SimpleNamespace(model=Masked(), image_px=8, scores="retrieval", layers=())
    monkeypatch.setattr(roofline, "build_bare", lambda *_: built)
    with pytest.raises(UnknownError, match="depend on its data"):
        predict(spec_of(), ROOF, Path(), {})


def test_every_cell_has_its_rate_or_the_reason_why_not(tiny_prepared, tmp_path):
    known = msgspec.structs.replace(spec_of(), cell="a")
    lacking = msgspec.structs.replace(spec_of(optimizer="adafactor"), cell="b")
    settings = PredictSettings(specs=[known, lacking], devices={"card": ROOF})
    predict_rates(settings, tiny_prepared / MANIFEST, tmp_path / "predicted.json")
    first, second = json.loads((tmp_path / "predicted.json").read_text())
    assert (first["device"], first["cell"]) == ("card", "a")
    assert first["samples_per_s"] > 0
    assert second.keys() == {"device", "cell", "work", "why"}
    work = first["work"]
    assert work == second["work"]
    assert work["model"] == "bridgetower-tiny, 8 tokens"
    assert 2.9 < work["flops"] / sum(work["forward"].values()) < 3


def test_a_model_without_parts_has_no_work_by_part(tiny_prepared):
    settings = spec_of(model={"name": "clip", "size": "tiny"}).settings
    assert roofline.work_of(settings, tiny_prepared, {}) is None


def test_gaudis_lazy_mode_is_a_graph_and_its_optimizer_is_fused(predicted):
    work = [Operation(0, "", {n: 1}, {}) for n in range(10)]
    found = predicted(work, spec_of(kind="hpu", optimizer="adamw_torch"))
    assert found["launch_s"] == 0
    assert found["move_s"] == pytest.approx((7 + 3) * 1e9 / 1e12)


def test_the_recipe_reaches_its_goal_on_an_h100_by_prediction(tiny_prepared):
    """300 samples/s per card (45% MFU), from the registry's peaks and the model's own counts."""
    config = read_yaml(ROOT / "config/config.yaml")
    chosen = {"studies": ["bridgetower-speedups"], "devices": ["h100"]}
    project = load_project(ROOT, config | chosen)
    card, plan, steps = project.devices["h100"], make_plan(project), {}
    roof = Roof(peaks=card.peaks, memory_gb_per_s=card.memory_gb_per_s)

    def rate(recipe, batch):
        cell = f"recipe={recipe}~batch={batch}"
        spec = plan.runs["bridgetower-speedups", "h100", cell, 1]
        return predict(spec, roof, tiny_prepared, steps)["samples_per_s"] / 8

    assert rate("published", 48) < 0.6 * 300
    assert 300 <= rate("bucket-view", 64) < 989e12 * 0.6 / 1.489e12
