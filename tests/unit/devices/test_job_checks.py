"""Jobs on the wrong device, in the wrong number of processes, or with settings it does not have."""

import pytest
from job_specs import make_job
from msgspec.structs import replace

from feedrate.config.settings import HpuSettings
from feedrate.devices.base import DeviceError, UnsupportedError, check_settings, refusals
from feedrate.jobs.job_setup import check_count, check_model

GAUDI2 = "(?i).*(gaudi ?2|hl-?2).*"


def test_the_registered_model_passes():
    for model in ("GAUDI2", "HL-225H"):
        check_model(make_job(device="gaudi2"), model, GAUDI2)


def test_the_start_of_another_name_is_another_model():
    with pytest.raises(DeviceError, match="got 'NVIDIA H100 PCIe'"):
        check_model(make_job(device="h100"), "NVIDIA H100 PCIe", "NVIDIA H100")


def test_another_model_is_told_with_both_names():
    with pytest.raises(
        DeviceError, match=r"asked for gaudi2 \(model_pattern .*\) and got 'HL-325L'"
    ):
        check_model(make_job(device="gaudi2"), "HL-325L", GAUDI2)


def test_without_a_pattern_any_model_passes():
    check_model(make_job(device="cpu"), "Made Up 9000", "")


def test_the_count_is_checked_over_all_nodes_and_on_each():
    check_count(make_job("srun", 16, nodes=2), 16, 8)
    check_count(make_job(), 1, 1)
    with pytest.raises(DeviceError, match="8 processes, 8 on each node, and got 1, 1"):
        check_count(make_job("mpirun", 8), 1, 1)
    with pytest.raises(DeviceError, match="16 processes, 8 on each node, and got 16, 16"):
        check_count(make_job("srun", 16, nodes=2), 16, 16)


def asking(kind: str, **parts):
    """A job of a kind with changed parts of its settings."""
    job = make_job(kind=kind)
    changed = {name: replace(getattr(job.settings, name), **part) for name, part in parts.items()}
    return replace(job, settings=replace(job.settings, **changed))


@pytest.mark.parametrize(
    ("kind", "part", "setting", "value"),
    [
        ("cpu", "train", "precision", "fp16"),
        ("cpu", "train", "precision", "tf32"),
        ("hpu", "train", "precision", "tf32"),
        ("cpu", "train", "precision", "fp8"),
        ("cpu", "train", "execution", "cuda_graphs"),
        ("cpu", "train", "strategy", "fast_ddp"),
        ("hpu", "train", "limit_all_gathers", True),
        ("cuda", "train", "strategy", "fast_ddp"),
        ("cuda", "train", "memory_gib", 1.5),
        ("hpu", "train", "memory_gib", 1.5),
        ("hpu", "train", "strategy", "fsdp"),
        ("hpu", "train", "precision", "fp16_full"),
        ("hpu", "train", "ddp_bucket_view", True),
    ],
)
def test_a_setting_that_a_kind_does_not_have_is_refused(kind, part, setting, value):
    assert list(refusals(make_job(kind=kind))) == []
    job = asking(kind, **{part: {setting: value}})
    with pytest.raises(UnsupportedError, match=rf"{part}.{setting}: {value} .* on {kind}"):
        check_settings(job)


@pytest.mark.parametrize(
    ("part", "setting", "value", "instead"),
    [
        ("train", "execution", "compiled", "hpu.mode"),
        ("train", "ddp_bucket_mb", 9, "hpu.ddp_bucket_cap_mb"),
        ("loader", "non_blocking", True, "hpu.non_blocking_data_copy"),
    ],
)
def test_a_kind_names_its_own_setting_instead(part, setting, value, instead):
    (sentence,) = refusals(asking("hpu", **{part: {setting: value}}))
    assert sentence.endswith(f"use {instead}")


def test_cuda_graphs_do_not_accumulate_gradients():
    """torch 2.13: "accessing gradient tensor output of CUDAGraphs that has been overwritten by a
    subsequent run" (_inductor/cudagraph_trees.py, format_dealloc_msg)."""
    graphs = {"execution": "cuda_graphs"}
    assert list(refusals(asking("cuda", train=graphs))) == []
    (sentence,) = refusals(asking("cuda", train=graphs | {"gradient_accumulation": 2}))
    assert sentence == "train.execution: cuda_graphs needs train.gradient_accumulation: 1, not 2"


def test_settings_of_gaudi_that_contradict_each_other_are_refused():
    job = make_job(kind="hpu")
    for changes, word in (
        ({"minimize_memory": True}, "precision: fp8"),
        ({"mode": "eager", "pipelining_fwd_bwd": True}, "mode: lazy"),
        ({"autocast_bf16_ops": ["linear"]}, "need each other"),
    ):
        asked = replace(job, settings=replace(job.settings, hpu=HpuSettings(**changes)))
        assert any(word in sentence for sentence in refusals(asked))


@pytest.mark.parametrize(
    ("loader", "refused"),
    [
        ({"workers": 2}, True),
        ({"workers": 2, "start_method": "forkserver"}, False),
        ({"workers": 2, "decode": "device"}, False),
        ({"workers": 0}, False),
    ],
)
def test_no_worker_is_forked_on_several_gaudi_nodes(loader, refused):
    """optimum-habana starts them with `spawn` there, and our setting would override that."""
    for nodes in (1, 2):
        asked = replace(asking("hpu", loader=loader), count=8 * nodes, nodes=nodes)
        said = [one for one in refusals(asked) if "start_method" in one]
        assert len(said) == (refused and nodes > 1)
