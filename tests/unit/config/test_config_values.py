"""Errors of a configuration as a whole, and of values from other places."""

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.spec import Protocol
from feedrate.config.values import convert_text

PUBLISHED = "published/bridgetower-dataloading.csv"


def test_a_page_of_one_name_has_one_caption_in_all_studies(copy):
    copy.edit(
        "studies/flava-scaling.yaml",
        ("{name: sizes, kind: throughput", "{name: reach, kind: throughput"),
    )
    copy.load(studies=["flava-scaling"])
    assert copy.error(studies=["flava-batch-search", "flava-scaling"]) == (
        "config/studies/flava-scaling.yaml: figures[0].name: 'reach' is not allowed with the "
        "caption figure_sizes; the study flava-batch-search has it with figure_reach"
    )


def test_a_long_list_is_cut(copy):
    path = copy.root / "config" / PUBLISHED
    path.write_text(path.read_text(encoding="utf-8").replace("samples/s,48", "samples/s,many"))
    lines = copy.error().splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("… and ")


def test_a_missing_registry(copy):
    (copy.root / "config/devices.yaml").unlink()
    assert copy.error() == "config/devices.yaml: no such file or directory"


def test_a_param_that_is_no_mapping():
    with pytest.raises(ConfigError, match="--settings: 'steps: 3' is not a mapping"):
        convert_text("steps: 3", Protocol, "--settings")
    with pytest.raises(ConfigError, match="--settings: warmup_steps: missing, but required"):
        convert_text("{'steps': 3}", Protocol, "--settings")
    assert convert_text("{'steps': 3, 'warmup_steps': 1}", Protocol, "x").ceiling_s == 2.0
    assert convert_text('{"steps": 3, "warmup_steps": 1}', Protocol, "x").ceiling_s == 2.0
