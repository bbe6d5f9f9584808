"""What a model takes at least, by precision, optimizer and strategy; and what a step takes."""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from feedrate.config.devices import Device
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.settings import Settings, TrainSettings
from feedrate.config.values import read_yaml
from feedrate.jobs.worker import classify
from feedrate.models import memory
from feedrate.models.builders import flava
from feedrate.models.flops import GIB, AsOnDevice, DoesNotFitError, check_fits, states_gib

ROOT = Path(__file__).resolve().parents[3]
CARD_GIB = 139.8
"""A card of 141 GB, as a process can allocate it."""


def train(**changes):
    return TrainSettings(**{"precision": "fp32", **changes})


@pytest.fixture(scope="module")
def model():
    made = torch.nn.Linear(1024, 1024, bias=False, device="meta")
    made.frozen = torch.nn.Parameter(torch.empty(1024, 512, device="meta"), requires_grad=False)
    return made


@pytest.mark.parametrize(
    ("settings", "bytes_a_weight", "bytes_frozen"),
    [
        ({}, 16, 4),
        ({"precision": "bf16"}, 16, 4),
        ({"precision": "bf16_full"}, 8, 2),
        ({"optimizer": "adamw_torch_8bit"}, 10, 4),
        ({"optimizer": "adamw_torch_4bit"}, 9, 4),
        ({"optimizer": "adamw_torch_loop"}, 16, 4),
        ({"optimizer": "sgd"}, 8, 4),  # what is not known counts as nothing: a lower bound
        ({"precision": "bf16_full", "optimizer": "adamw_torch_8bit"}, 6, 2),
    ],
)
def test_bytes_of_a_weight(model, settings, bytes_a_weight, bytes_frozen):
    expected = (1024**2 * bytes_a_weight + 1024 * 512 * bytes_frozen) / GIB
    assert sum(states_gib(model, train(**settings), 1)) == pytest.approx(expected)
    assert sum(states_gib(model, train(strategy="ddp", **settings), 8)) == pytest.approx(expected)
    shared = sum(states_gib(model, train(strategy="fsdp", **settings), 8))
    assert shared == pytest.approx(expected / 8)


def test_what_does_not_fit_is_out_of_memory_before_anything_is_made(model):
    check_fits(model, train(), 1, 0.02)
    with pytest.raises(DoesNotFitError, match=r"take 0\.0176 GiB a device") as caught:
        check_fits(model, train(), 1, 0.01)
    assert classify(caught.value).out_of_memory


@pytest.fixture(scope="module")
def large():
    with torch.device("meta"):
        return flava.Flava(flava.make_config("10B"))


def levels_of_10b(count):
    """What the study asks for at 10B on H200 cards, by strategy."""
    config = read_yaml(ROOT / "config/config.yaml", "config.yaml")
    project = load_project(ROOT, config | {"studies": ["flava-scaling"], "devices": ["h200"]})
    devices = {"h200": msgspec.structs.replace(project.devices["h200"], count=count)}
    plan = make_plan(msgspec.structs.replace(project, devices=devices))
    return {
        spec.levels["strategy"]: spec.settings.train
        for spec in plan.runs.values()
        if spec.levels["size"] == "10B"
    }


@pytest.mark.parametrize(
    ("strategy", "gib"),
    [
        ("ddp", 150.24),
        ("ddp-ac", 150.24),
        ("ac-8bit", 94.12),
        ("ac-bf16", 75.12),
        ("ac-bf16-8bit", 56.41),
        ("ac-offload", 150.24),  # of the host's memory
    ],
)
def test_10b_on_one_card_of_141_gb(large, strategy, gib):
    """fp32 states of 16 bytes a parameter are too many for it; each other level is a way out."""
    levels = levels_of_10b(count=1)
    ways = {"ddp", "ddp-ac", "ddp-all-losses", "ac-8bit", "ac-bf16", "ac-bf16-8bit", "ac-offload"}
    assert levels.keys() == ways
    settings = levels[strategy]
    assert sum(states_gib(large, settings, 1)) == pytest.approx(gib, abs=0.01)
    fits = gib < CARD_GIB
    if fits:
        check_fits(large, settings, 1, CARD_GIB)
    else:
        where = "for which the host has 140" if settings.cpu_offload else "which has 140"
        with pytest.raises(DoesNotFitError, match=where):
            check_fits(large, settings, 1, CARD_GIB)


def test_eight_cards_share_10b_and_what_rests_on_the_host_is_the_hosts(large):
    levels = levels_of_10b(count=8)
    check_fits(large, levels["fsdp"], 8, 40)
    assert sum(states_gib(large, levels["fsdp"], 8)) == pytest.approx(150.24 / 8, abs=0.01)
    check_fits(large, train(strategy="fsdp", cpu_offload=True), 1, 160)


# A step, followed on the meta device


class Chain(torch.nn.Module):
    """tanh of a linear layer: it keeps its input and its output for the backward pass."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(12, 64, bias=False, device="meta")

    def forward(self, pixel_values, **_):
        return {"loss": torch.tanh(self.linear(pixel_values.flatten(1))).sum()}


def test_storages_are_followed_from_their_operation_to_their_release():
    built = SimpleNamespace(model=Chain(), image_px=2, scores="retrieval")
    found = memory.follow(built, 5, AsOnDevice(None, cpu=True))
    fixed, of_samples, finished = found.moments[found.forward - 1]
    batch, output, loss = 12 * 4 + 2 * 5 * 8, 64 * 4, 4
    assert (fixed, of_samples / memory.ROWS, finished) == (loss, batch + output, 0)
    assert max(m[1] for m in found.moments) / memory.ROWS == batch + 2 * output, "before tanh"
    assert max(m[0] for m in found.moments) >= 12 * 64 * 4, "the gradient of the weights"


def settings_of(model, batch=8, **values):
    """Settings of the smallest size of a model; `train.strategy` as train_strategy."""
    parts = {"model": {"name": model, "size": "tiny"}, "train": {"precision": "fp32"}}
    for name, value in values.items():
        part, _, key = name.partition("_")
        parts[part][key] = value
    parts["train"]["batch_size"] = batch
    return msgspec.convert({**parts, "loader": {"max_tokens": 16}}, Settings)


def card(kind="cuda", count=8, memory_gib=2):
    return Device(
        label="card", kind=kind, count=count, memory_gib=memory_gib, capabilities=[], peaks=[]
    )


def peak(model, kind="cuda", count=8, **values):
    wanted = settings_of(model, **values)
    return memory.peak_gib(wanted, card(kind, count), wanted.train.batch_size)


@pytest.mark.parametrize("model", ["bridgetower", "clip", "flava", "vit"])
def test_the_largest_batch_fits_and_the_next_does_not(model):
    wanted, device = settings_of(model), card()
    found = memory.needs(wanted, device)
    room = device.memory_gib - memory.CONTEXT_GIB
    assert memory.peak_gib(wanted, device, found.largest_batch) <= room
    assert memory.peak_gib(wanted, device, found.largest_batch + 1) > room
    assert found.activations_gib < found.peak_gib
    assert memory.largest_batch(wanted, card(memory_gib=memory.CONTEXT_GIB)) == 0
    assert memory.needs(wanted, card(memory_gib=None)).largest_batch is None


@pytest.mark.parametrize(
    ("model", "less", "more"),
    [
        ("flava", {"model_checkpointing": True}, {}),
        ("flava", {"model_checkpointing": True, "train_precision": "bf16"}, {}),
        ("flava", {"model_attention": "sdpa"}, {}),
        ("flava", {"train_precision": "bf16"}, {}),
        ("flava", {"batch": 7}, {}),
        ("flava", {"train_ddp_bucket_view": True}, {}),
        ("flava", {"count": 1}, {}),
        ("flava", {}, {"train_gradient_accumulation": 2}),
        ("vit", {"model_image_px": 64}, {}),
        ("vit", {"model_attention": "flash", "train_precision": "bf16"}, {}),
        (
            "flava",
            {"train_strategy": "fsdp", "train_cpu_offload": True},
            {"train_strategy": "fsdp"},
        ),
    ],
)
def test_what_takes_less_memory(model, less, more):
    assert peak(model, **less) < peak(model, **more)


def test_sharding_takes_less_where_states_are_more_than_layers():
    large = {"batch": 1, "model_size": "350M"}
    assert peak("flava", train_strategy="fsdp", **large) < peak("flava", **large)


def test_buckets_are_there_before_the_gradients_that_are_views_of_them():
    large = settings_of("flava", 1, model_size="350M", train_ddp_bucket_view=True)
    found = memory.needs(large, card())
    kept = found.weights_gib + found.gradients_gib + found.states_gib
    assert found.peak_gib >= kept + found.activations_gib


class Layers(torch.nn.Sequential):
    """Some of torch's layers, on the values of an image."""

    def __init__(self, device):
        wide, narrow = (torch.nn.Linear(a, b, device=device) for a, b in ((192, 96), (96, 192)))
        kept = torch.nn.GELU(), torch.nn.Softmax(dim=-1)
        super().__init__(torch.nn.LayerNorm(192, device=device), wide, *kept, narrow)

    def forward(self, pixel_values, **_):
        return {"loss": super().forward(pixel_values.flatten(1)).sum()}


def test_the_peak_is_that_of_torchs_own_tracker():
    """In fp32 on a CPU, where it can follow a step with fake tensors."""
    rows = memory.ROWS
    with FakeTensorMode():
        model, tracker = Layers("cpu"), MemTracker()
        tracker.track_external(model)
        with tracker:
            images = torch.empty(rows, 3, 8, 8)
            tracker.track_external(images)
            model(images)["loss"].backward()
        expected = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    model = Layers("meta")
    built = SimpleNamespace(model=model, image_px=8, scores="retrieval")
    found = memory.follow(built, 0, AsOnDevice(None, cpu=True))
    weights = sum(p.numel() * p.itemsize for p in model.parameters())
    peak = weights + max(fixed + rows + 4 * done for fixed, rows, done in found.moments)
    assert peak == pytest.approx(expected, rel=0.01)
