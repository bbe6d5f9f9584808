"""Models and their sizes: the plan refuses those that no file in feedrate.models declares."""

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan

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


def test_a_size_of_another_model_is_not_one_of_this(copy):
    copy.edit(STUDY, ("model: {size: tiny}", "model: {size: B-32}"))
    with pytest.raises(ConfigError, match=SIZES):
        make_plan(copy.load())
