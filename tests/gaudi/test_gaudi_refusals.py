"""No Gaudi, another Gaudi, or a setting that it cannot do: a sentence, and never another device."""

import os
import subprocess

import pytest
from gaudi_software import HERE, PYTHON, ROOT, Job, make_spec, parse_log
from msgspec.structs import replace


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"FEEDRATE_STANDIN_MODEL": "GAUDI3"}, "and got 'GAUDI3'"),
        ({"ACCELERATE_USE_CPU": "true"}, "optimum-habana would train on cpu"),
    ],
)
def test_without_the_device_a_job_is_a_fault_of_the_machine(
    prepared, tmp_path, environment, sentence
):
    job = Job(make_spec(environment=environment), prepared, tmp_path / "rep1")
    assert job.exit_code == 1
    assert sentence in job.stderr
    assert "Traceback" not in job.stderr
    assert not (job.out / "outcome.json").exists(), "it deserves another try"


def test_without_the_vendors_software_there_is_no_device():
    """A new interpreter without the stand-in."""
    code = "from feedrate.devices.base import adapter; adapter('hpu')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    ended = subprocess.run(
        [PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "DeviceError: no Gaudi software: the package habana-torch-plugin" in ended.stderr


def test_no_device_in_the_last_try_is_recorded(prepared, tmp_path):
    spec = make_spec(environment={"FEEDRATE_STANDIN_HPUS": "0"})
    job = Job(spec, prepared, tmp_path / "rep1", "--try", "1")
    record = parse_log(job.out)
    assert record.status == "failed"
    assert "found 0" in record.cause
    assert record.measurement is None


def test_a_rank_more_than_there_are_devices_is_told(prepared, tmp_path):
    environment = {"FEEDRATE_STANDIN_HPUS": "1"}
    spec = make_spec(count=2, launcher="torchrun", environment=environment)
    job = Job(spec, prepared, tmp_path / "rep1")
    assert job.exit_code == 1
    assert "the job needs 2 HPUs on this host, found 1" in job.stderr


@pytest.mark.parametrize(
    ("hpu", "sentence"),
    [
        ({"minimize_memory": True}, "needs train.precision: fp8, not fp32"),
        ({"mode": "eager", "pipelining_fwd_bwd": True}, "needs hpu.mode: lazy, not eager"),
        (
            {"trainer": "transformers"},
            "hpu.trainer: transformers does not offer hpu.fused_adam: true, hpu.fused_clip_norm: "
            "true, hpu.mode: lazy; use optimum-habana",
        ),
    ],
)
def test_what_gaudi_cannot_do_fails_in_a_sentence(prepared, tmp_path, hpu, sentence):
    job = Job(make_spec(hpu=hpu), prepared, tmp_path / "rep1")
    assert job.exit_code == 0, "a result, and no reason to try again"
    record = parse_log(job.out)
    assert record.status == "failed"
    assert sentence in record.cause


def test_the_stand_in_is_nowhere_but_where_it_is_asked_for():
    assert not list(HERE.parents[1].glob("workflow/**/habana_frameworks"))
    site = PYTHON.parents[1] / "lib"
    for name in ("habana_frameworks", "habana_torch_plugin*", "habana_media*"):
        assert not list(site.glob(f"python*/site-packages/{name}"))
    spec = make_spec()
    bare = replace(spec, software=replace(spec.software, environment={}))
    assert "standin" not in str(bare)
