"""The real library takes every set of arguments that a study can produce."""

import functools
from typing import get_args

import msgspec
import pytest
from gaudi_software import ROOT, make_spec, run_inside
from msgspec.structs import replace

from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.settings import HpuSettings, ModelSettings, Optimizer
from feedrate.config.values import read_yaml
from feedrate.devices.kinds.hpu import BF16_OPS, FP32_OPS

STOCK = {"trainer": "transformers", "mode": "eager", "fused_adam": False, "fused_clip_norm": False}
CHANGES = {
    "trainer": [STOCK],
    "mode": [{"mode": "eager"}, {"mode": "compile"}],
    "hpu_graphs_for_training": [{"hpu_graphs_for_training": True}],
    "hpu_graphs_for_inference": [{"hpu_graphs_for_inference": False}],
    "pipelining_fwd_bwd": [{"pipelining_fwd_bwd": True}],
    "non_blocking_data_copy": [{"non_blocking_data_copy": True}],
    "use_dynamic_shapes": [{"use_dynamic_shapes": True}],
    "fused_adam": [{"fused_adam": False}],
    "fused_clip_norm": [{"fused_clip_norm": False}],
    "adam_epsilon": [{"adam_epsilon": 1e-8}],
    "ddp_bucket_cap_mb": [{"ddp_bucket_cap_mb": 25}],
    "autocast_bf16_ops": [{"autocast_bf16_ops": ["linear"], "autocast_fp32_ops": ["softmax"]}],
    "autocast_fp32_ops": [{"autocast_bf16_ops": ["linear"], "autocast_fp32_ops": ["gelu"]}],
    "minimize_memory": [{"minimize_memory": True}],
    "sdp_on_bf16": [{"sdp_on_bf16": True}],
    "use_compiled_autograd": [{"use_compiled_autograd": True, "mode": "compile"}],
    "use_regional_compilation": [{"use_regional_compilation": True, "mode": "compile"}],
    "adjust_throughput": [{"adjust_throughput": True}],
}  # fmt: skip
"""Every setting of `hpu`, as it differs from its default, with what it needs beside it."""

BASE = make_spec(train={"precision": "bf16"})
FP8 = make_spec(train={"precision": "fp8"}, model={"attention": "sdpa"})
OPTIMIZERS = {
    name: make_spec(train={"optimizer": name}, hpu={"fused_adam": False})
    for name in get_args(Optimizer)
}
LIBRARYS_NAME = {
    "hpu_graphs_for_training": "use_hpu_graphs_for_training",
    "hpu_graphs_for_inference": "use_hpu_graphs_for_inference",
}


def with_hpu(**changes):
    base = FP8 if "minimize_memory" in changes else BASE
    return replace(base, settings=replace(base.settings, hpu=HpuSettings(**changes)))


@functools.cache
def study_specs():
    """The first repeat of all cells of all studies on all Gaudi devices."""
    config = read_yaml(ROOT / "config/config.yaml", "config.yaml")
    devices = read_yaml(ROOT / "config/devices.yaml", "devices.yaml")
    hpus = [name for name, device in devices.items() if device["kind"] == "hpu"]
    studies = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    project = load_project(ROOT, {**config, "devices": hpus, "studies": studies, "repeats": 1})
    specs = list(make_plan(project).runs.values())
    assert {spec.device for spec in specs} == set(hpus)
    assert {spec.study for spec in specs} == set(studies)
    return specs


def argued(spec):
    """The spec without names and most of the model, which no argument holds: of many cells it is
    the same."""
    named = {"study": "study", "device": "gaudi2", "cell": "cell", "levels": {}}
    asked = spec.settings.model
    model = ModelSettings(name=asked.name, size="tiny", attention=asked.attention)
    return msgspec.json.encode(replace(spec, settings=replace(spec.settings, model=model), **named))


@pytest.fixture(scope="module")
def parsed():
    """What the library makes of each change, by setting (None: of no change), of each cell of the
    studies, by study, device and cell, and of each optimizer."""
    specs = {(s.study, s.device, s.cell): s for s in study_specs()}
    specs |= {(None, 0): BASE, "fp8": FP8} | OPTIMIZERS
    for name, changes in CHANGES.items():
        specs |= {(name, i): with_hpu(**change) for i, change in enumerate(changes)}
    distinct = {argued(spec): msgspec.to_builtins(spec) for spec in specs.values()}
    answers = run_inside("parse_arguments.py", lines=distinct.values())
    found = dict(zip(distinct, answers, strict=True))
    return {name: found[argued(spec)] for name, spec in specs.items()}


def test_every_cell_of_every_study_is_taken(parsed):
    """One process parses for all ranks: where a job runs is not asked here."""
    for spec in study_specs():
        answer = parsed[spec.study, spec.device, spec.cell]
        assert "refused" not in answer, (spec.device, spec.cell)
        arguments, settings = answer["arguments"], spec.settings
        assert answer["device"].startswith("hpu")
        assert arguments["max_steps"] == spec.protocol.steps
        assert arguments["dataloader_num_workers"] == settings.loader.workers
        assert arguments["per_device_train_batch_size"] == settings.train.batch_size
        autocast = settings.train.precision in ("bf16", "fp8")
        assert arguments["bf16"] == autocast
        if settings.hpu.trainer == "transformers":
            continue
        assert arguments["use_habana"]
        assert arguments["throughput_warmup_steps"] == spec.protocol.warmup_steps
        assert arguments["distribution_strategy"] == settings.train.strategy
        assert answer["config"]["use_torch_autocast"] == autocast
        assert arguments["fp8"] == (settings.train.precision == "fp8")
        assert arguments["attn_implementation"] == settings.model.attention


def test_every_setting_of_hpu_is_tried():
    assert set(CHANGES) == set(HpuSettings.__struct_fields__)


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_is_taken_and_changes_what_the_library_gets(parsed, name):
    for i, change in enumerate(CHANGES[name]):
        answer = parsed[name, i]
        assert "refused" not in answer
        others = {key: value for key, value in change.items() if key != name}
        beside = parsed[None, 0] if not others else None
        assert answer != beside
        field = LIBRARYS_NAME.get(name, name)
        if field in answer["arguments"]:
            assert answer["arguments"][field] == change[name]


def test_transformers_own_trainer_gets_the_settings_that_it_has(parsed):
    answer = parsed["trainer", 0]
    arguments = answer["arguments"]
    assert answer["device"].startswith("hpu")
    assert (answer["lazy"], answer["config"]) == ("0", {})
    assert "use_habana" not in arguments
    assert (arguments["adam_epsilon"], arguments["ddp_bucket_cap_mb"]) == (1e-6, 230)
    assert arguments["bf16"]


@pytest.mark.parametrize(("i", "mode"), [(0, "eager"), (1, "compile")])
def test_modes_other_than_lazy_are_told_to_library_and_software_alike(parsed, i, mode):
    answer = parsed["mode", i]
    arguments = answer["arguments"]
    assert (arguments["use_lazy_mode"], answer["lazy"]) == (False, "0")
    assert arguments["torch_compile"] == (mode == "compile")
    backend = "hpu_backend" if mode == "compile" else None
    assert arguments["torch_compile_backend"] == backend
    assert not arguments["use_hpu_graphs_for_inference"], "only lazy mode has them"


def test_what_is_not_an_argument_reaches_the_config_file_or_the_environment(parsed):
    assert parsed["use_dynamic_shapes", 0]["config"]["use_dynamic_shapes"]
    assert not parsed["fused_adam", 0]["config"]["use_fused_adam"]
    assert not parsed["fused_clip_norm", 0]["config"]["use_fused_clip_norm"]
    assert parsed["autocast_fp32_ops", 0]["lists"] == {BF16_OPS: ["linear"], FP32_OPS: ["gelu"]}
    copying = parsed["non_blocking_data_copy", 0]["arguments"]["accelerator_config"]
    assert copying["non_blocking"]


def test_the_library_knows_all_optimizers_of_the_configuration(parsed):
    refused = {name: parsed[name]["refused"] for name in OPTIMIZERS if "refused" in parsed[name]}
    assert refused == {}
