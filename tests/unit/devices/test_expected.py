"""A job on the wrong device, or in the wrong number of processes, says so."""

import json

import pytest
from job_specs import make_job

from feedrate.core import variables
from feedrate.devices.base import DeviceError, check_count, check_model

GAUDI2 = {variables.MODEL_PATTERNS: json.dumps({"gaudi2": "(?i).*(gaudi ?2|hl-?2).*", "cpu": None})}


def test_the_registered_model_passes():
    for model in ("GAUDI2", "HL-225H"):
        check_model(make_job(device="gaudi2"), model, GAUDI2)


def test_the_start_of_another_name_is_another_model():
    h100 = {variables.MODEL_PATTERNS: json.dumps({"h100": "NVIDIA H100"})}
    with pytest.raises(DeviceError, match="got 'NVIDIA H100 PCIe'"):
        check_model(make_job(device="h100"), "NVIDIA H100 PCIe", h100)


def test_another_model_is_told_with_both_names():
    with pytest.raises(
        DeviceError, match=r"asked for gaudi2 \(model_pattern .*\) and got 'HL-325L'"
    ):
        check_model(make_job(device="gaudi2"), "HL-325L", GAUDI2)


@pytest.mark.parametrize(
    "environment", [{}, GAUDI2, {variables.MODEL_PATTERNS: '{"h100": "NVIDIA H100 80GB HBM3"}'}]
)
def test_without_a_pattern_any_model_passes(environment):
    check_model(make_job(device="cpu"), "Made Up 9000", environment)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_patterns_that_are_no_json_are_a_sentence(text):
    with pytest.raises(DeviceError, match="not JSON"):
        check_model(make_job(), "x", {variables.MODEL_PATTERNS: text})


def test_the_count_is_checked_over_all_nodes_and_on_each():
    check_count(make_job("srun", 16, nodes=2), 16, 8)
    check_count(make_job(), 1, 1)
    with pytest.raises(DeviceError, match="8 processes, 8 on each node, and got 1, 1"):
        check_count(make_job("mpirun", 8), 1, 1)
    with pytest.raises(DeviceError, match="16 processes, 8 on each node, and got 16, 16"):
        check_count(make_job("srun", 16, nodes=2), 16, 16)
