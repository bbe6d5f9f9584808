"""What a model takes at least, by precision, optimizer and strategy."""

from pathlib import Path

import msgspec
import pytest
import torch

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.settings import TrainSettings
from feedrate.config.values import read_yaml
from feedrate.jobs.worker import classify
from feedrate.models.builders import flava
from feedrate.models.flops import GIB, DoesNotFitError, check_fits, state_gib

ROOT = Path(__file__).resolve().parents[3]
CARD_GIB = 140.4
"""A card of 141 GB, in the driver's count."""


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
    assert state_gib(model, train(**settings), 1) == pytest.approx(expected)
    assert state_gib(model, train(strategy="ddp", **settings), 8) == pytest.approx(expected)
    shared = state_gib(model, train(strategy="fsdp", **settings), 8)
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
    assert levels.keys() == {"ddp", "ddp-ac", "ac-8bit", "ac-bf16", "ac-bf16-8bit", "ac-offload"}
    settings = levels[strategy]
    assert state_gib(large, settings, 1) == pytest.approx(gib, abs=0.01)
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
    assert state_gib(large, levels["fsdp"], 8) == pytest.approx(150.24 / 8, abs=0.01)
    check_fits(large, train(strategy="fsdp", cpu_offload=True), 1, 160)
