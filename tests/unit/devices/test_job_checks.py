"""Jobs on the wrong device, in the wrong number of processes, or with settings it does not have."""

from pathlib import Path

import pytest
from job_specs import make_job
from msgspec.structs import replace

from feedrate.config.devices import is_called
from feedrate.config.settings import HpuSettings
from feedrate.devices.base import DeviceError, UnsupportedError, check_settings, refusals
from feedrate.jobs import job_setup


@pytest.mark.parametrize(
    ("job", "world_size", "local_ranks", "message"),
    [
        (make_job("mpirun", 8), 1, 1, "8 processes, 8 on each node, and got 1, 1"),
        (make_job("srun", 16, nodes=2), 16, 16, "16 processes, 8 on each node, and got 16, 16"),
    ],
)
def test_the_count_is_checked_over_all_nodes_and_on_each(
    monkeypatch, job, world_size, local_ranks, message
):
    ranks = (0, world_size, 0, local_ranks)
    monkeypatch.setattr(job_setup, "rank_from_environment", lambda: ranks)
    with pytest.raises(DeviceError, match=message):
        job_setup.open_device(job, Path(), None, None)


def test_a_model_is_called_by_the_whole_of_its_pattern():
    gaudi2 = "(?i).*(gaudi ?2|hl-?2).*"
    assert is_called("GAUDI2", gaudi2)
    assert is_called("HL-225H", gaudi2)
    assert not is_called("HL-325L", gaudi2)
    assert not is_called("NVIDIA H100 PCIe", "NVIDIA H100")


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
