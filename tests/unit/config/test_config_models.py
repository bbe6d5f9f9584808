"""Models and their sizes: the plan refuses those that no file in feedrate.models declares."""

import pytest
from transformers.training_args import OptimizerNames

from feedrate.config.errors import ConfigError
from feedrate.config.plan import OPTIMIZERS, make_plan

STUDY = "studies/bridgetower-dataloading.yaml"
SIZES = "sizes of bridgetower: tiny, base, large"


@pytest.mark.parametrize(
    ("change", "cell", "message"),
    [
        (("model: {name: bridgetower, size: large}", "model: {name: bridgetwr, size: large}"),
         "workers=0~decode=reference~strategy=ddp on cpu",
         "model.name: 'bridgetwr' is not allowed; did you mean bridgetower? models: bridgetower, "),
        (("model: {size: tiny}", "model: {size: huge}"),
         "workers=0~decode=reference~strategy=ddp on cpu",
         f"model.size: 'huge' is not allowed; {SIZES}"),
        (("sets: loader.decode\n    label: JPEG decoding\n    levels: [reference, device]\n"
          "    requires: {device: decode_device}",
          "bundles:\n      reference: {}\n      device: {model.size: huge}\n"
          "    levels: [reference, device]"),
         "workers=1~decode=device~strategy=ddp on cpu",
         f"model.size: 'huge' is not allowed; {SIZES}"),
    ],
)  # fmt: skip
def test_an_unknown_model_or_size_is_an_error_of_the_plan(copy, change, cell, message):
    copy.edit(STUDY, change)
    with pytest.raises(ConfigError) as refusal:
        make_plan(copy.load(studies=["bridgetower-dataloading"]))
    assert str(refusal.value).startswith(f"config/{STUDY}: cell {cell}: {message}")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("precision: fp32", "precision: fp32, optimizer: adamw_troch"),
         "train.optimizer: 'adamw_troch' is not allowed; did you mean adamw_torch? optimizers: "),
        (("max_tokens: 32", "max_tokens: 513"),
         "loader.max_tokens: 513 is not allowed; bridgetower takes at most 512"),
        (("model: {size: tiny}", "model: {size: tiny, checkpoint: ''}"),
         "model.checkpoint: '' is not allowed; expected a hub id, a folder or null"),
        (("model: {size: tiny}", f"model: {{size: tiny, checkpoint: {'x' * 300}}}"),
         "model.checkpoint: it is not allowed; a path has at most 4095 bytes, and each "),
    ],
)  # fmt: skip
def test_what_no_job_could_do_is_an_error_of_the_plan(copy, change, message):
    copy.edit(STUDY, change)
    with pytest.raises(ConfigError) as refusal:
        make_plan(copy.load(studies=["bridgetower-dataloading"]))
    assert f" on cpu: {message}" in str(refusal.value)


def test_a_checkpoint_may_take_longer_captions(copy):
    copy.edit(STUDY, ("max_tokens: 32", "max_tokens: 4096"))
    assert make_plan(copy.load(studies=["bridgetower-dataloading"], checkpoint="of/mine")).runs


def test_the_optimizers_are_those_that_the_trainer_knows_and_we_can_set():
    """adamw_apex_fused is known to transformers 4.55 alone, which trains on Gaudi."""
    ours = {"adamw_torch_loop", "adamw_torch_foreach", "adamw_apex_fused"}
    known = {one.value for one in OptimizerNames}
    assert set(OPTIMIZERS) - ours <= known
    others = known - set(OPTIMIZERS)  # for other devices, or with an argument that no setting has
    assert all(any(word in n for word in ("galore", "apollo", "xla", "npu")) for n in others)


def test_a_size_of_another_model_is_not_one_of_this(copy):
    copy.edit(STUDY, ("model: {size: tiny}", "model: {size: B-32}"))
    with pytest.raises(ConfigError, match=SIZES):
        make_plan(copy.load())
