"""What a model takes at least, by precision, optimizer and strategy."""

import pytest
import torch

from feedrate.config.settings import TrainSettings
from feedrate.failure import classify
from feedrate.models import flava
from feedrate.models.memory import GIB, DoesNotFitError, check_fits, state_gib


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


def test_flava_10b_is_too_large_for_one_card_in_fp32_and_not_with_8_bit_states():
    with torch.device("meta"):
        large = flava.Flava(flava.make_config("10B"))
    with pytest.raises(DoesNotFitError):
        check_fits(large, train(precision="bf16"), 8, 140)
    check_fits(large, train(precision="bf16", optimizer="adamw_torch_8bit"), 1, 140)
    check_fits(large, train(precision="bf16", strategy="fsdp"), 8, 40)
