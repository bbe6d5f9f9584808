"""`decode: device` on the stand-in, through GaudiTrainer: a valid record, or a failure that says
why, and the host never in the device's place."""

import json
import shutil

import pytest
from gaudi_software import Job, failed_checks, make_spec, output_inside, parse_log


def test_a_job_that_decodes_on_the_device_ends_in_a_valid_record(decoded):
    assert decoded.exit_code == 0, decoded.stderr
    record = decoded.record()
    assert failed_checks(record) == {}
    details = {check.name: check.detail for check in record.checks}
    assert "device" in details["decode_path"]
    assert record.measurement.samples == 12
    assert record.trainer.library == "optimum-habana 1.21.2"
    assert record.ceilings.loader_samples_per_s > 0
    assert record.ceilings.model_samples_per_s > 0
    assert (record.evaluation["eval_samples"], record.evaluation["predict_samples"]) == (7, 6)


def test_it_learns_the_same_from_the_same_samples_as_on_the_host(decoded, full_job):
    ours, theirs = ([s["loss"] for s in job.events("step")] for job in (decoded, full_job))
    assert ours == pytest.approx(theirs, rel=0.02)  # the pixels differ a little
    for key in ("eval_loss", "predict_loss"):
        values = [job.record().evaluation[key] for job in (decoded, full_job)]
        assert values[0] == pytest.approx(values[1], rel=0.02)


def test_each_rank_decodes_its_own(two_ranks):
    for rank in (0, 1):
        (data,) = two_ranks.events("data", rank)
        assert data["decode"] == "device"


def test_without_the_vendors_package_the_cell_fails_with_the_cause(prepared, tmp_path):
    job = Job(make_spec(loader={"decode": "device"}), prepared, tmp_path / "rep1")
    assert job.exit_code == 0, "a result: another try would end the same"
    assert job.events("step") == []
    assert job.events("data") == []
    record = parse_log(job.out)
    assert (record.status, record.measurement) == ("failed", None)
    assert (
        "the package habana-media-loader of the Gaudi software cannot be imported" in record.cause
    )
    assert "No module named 'habana_frameworks.mediapipe'" in record.cause


def test_a_log_with_the_librarys_fallback_warning_makes_the_run_invalid(decoded, tmp_path):
    """Its example script goes on decoding on the host after this warning, and says no more."""
    copied = shutil.copytree(decoded.out, tmp_path / "rep1")
    start = "Using Pytorch native dataloader because: No module named"
    output = output_inside("fallback_warning.py")  # the library may say more when it is imported
    (warning,) = (line for line in output if line.startswith(start))
    outcome = json.loads((copied / "outcome.json").read_text())
    outcome.pop("files")  # of the log before the line was added
    (copied / "outcome.json").write_text(json.dumps(outcome))
    with (copied / "train.log").open("a") as log:
        log.write(f"{warning}\n")
    record = parse_log(copied)
    assert record.status == "invalid"
    (detail,) = failed_checks(record).values()
    assert "No module named 'habana_frameworks.mediapipe'" in detail
    assert "host decoded instead of the device" in detail
