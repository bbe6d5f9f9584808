"""Forward passes of tiny models on the stand-in, with the libraries of the Gaudi software."""

from typing import Any

import pytest
from gaudi_software import Job, failed_checks, make_spec, run_inside
from msgspec.structs import replace

from feedrate.config.settings import InferenceSettings
from feedrate.config.spec import RunSpec


def inference(head: str, preprocessing: str, **parts: Any) -> RunSpec:
    """An inference run of 4 passes, the first left out."""
    spec = make_spec(loader={"decode": "host"}, **parts)
    chosen = InferenceSettings(head=head, preprocessing=preprocessing)
    return replace(spec, task="inference", settings=replace(spec.settings, inference=chosen))


CASES = {
    "lazy": inference("contrastive", "out", hpu={"hpu_graphs_for_inference": False}),
    "graphs": inference("matching", "in", train={"precision": "bf16"}),
    "compile": inference("contrastive", "in", hpu={"mode": "compile"}, model={"name": "clip"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_job_ends_in_a_valid_record(prepared, tmp_path, name):
    job = Job(CASES[name], prepared, tmp_path / "rep1")
    assert job.exit_code == 0, job.stderr
    record = job.record()
    assert failed_checks(record) == {}, job.log
    assert record.status == ("ok" if all(c.passed for c in record.checks) else "invalid")
    assert (record.measurement.steps, record.measurement.samples) == (3, 6)
    assert record.measurement.step_time_p95_s >= record.measurement.step_time_median_s
    assert record.provenance.packages["transformers"].startswith("4.55.")
    assert record.provenance.device_model == "GAUDI2"


def test_another_execution_than_hpu_mode_is_refused(prepared, tmp_path):
    spec = inference("contrastive", "out", train={"execution": "compiled"})
    job = Job(spec, prepared, tmp_path / "rep1")
    assert job.exit_code == 0
    assert job.record().status == "failed"
    assert "train.execution: compiled is not available on hpu" in job.record().cause


def test_clip_computes_on_gaudi_what_it_computes_elsewhere():
    """The library's own attention for CLIP would fail on texts, and mix up images."""
    assert run_inside("clip_answers.py") == {"off": 0.0}
