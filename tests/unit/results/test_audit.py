"""The checks of published numbers, on those of the sources."""

from pathlib import Path

import msgspec
import pytest

from feedrate.config.plan import published_settings
from feedrate.config.project import load_project, study_names
from feedrate.config.study import Published
from feedrate.config.values import read_yaml
from feedrate.results import audit

ROOT = Path(__file__).parents[3]
LOADING, VIT = "bridgetower-dataloading", "vit-speedups"


@pytest.fixture(scope="module")
def project():
    config = read_yaml(ROOT / "config/config.yaml")
    return load_project(ROOT, config | {"studies": study_names(ROOT)})


def peaks_of(project, device):
    return {peak.precision: peak.datasheet_tflops for peak in project.devices[device].peaks}


@pytest.fixture(scope="module")
def rates(project):
    def of(study):
        return {
            row.id: audit.rate(
                row,
                published_settings(project, study, row).train.precision,
                peaks_of(project, row.device),
            )
            for row in project.published[study]
            if row.metric == "samples_per_s"
        }

    return of


def test_every_published_rate_of_a_known_model_has_its_share_of_the_peak(rates):
    for study in (LOADING, "bridgetower-speedups", VIT):
        assert all(rate.mfu for rate in rates(study).values())
    found = rates(LOADING)
    assert found["2023-08-gaudi2-w0"].tflops == pytest.approx(601.5 * 1.48886 / 8, rel=1e-4)
    assert found["2023-08-gaudi2-w0"].mfu == pytest.approx(0.2591, rel=1e-3), "of 432 in bf16"
    assert found["2024-11-gaudi2-one-card"].mfu == pytest.approx(0.2, rel=1e-2)
    assert max(rate.mfu for rate in found.values()) < 0.5


def published_of(project):
    return {row.id: row for row in project.published[VIT]}


def test_the_baseline_of_vit_is_tf32_because_in_fp32_it_would_exceed_its_peak(project, rates):
    peaks = peaks_of(project, "a100-40gb")
    found = rates(VIT)
    assert (found["rate-before"].precision, round(found["rate-before"].mfu, 2)) == ("tf32", 0.33)
    after = found["rate-after"]
    assert (after.precision, round(after.mfu, 2)) == ("fp16", 0.25)
    before = audit.rate(published_of(project)["rate-before"], "fp32", peaks)
    assert round(before.mfu, 2) == 2.68
    said = audit.excess("ViT", before, peaks)
    for words in ("52.3 TFLOP/s", "268% of the peak in fp32", "17% of the peak in fp16"):
        assert words in said
    assert "so the source used a precision other than fp32, or more devices" in said
    assert audit.excess("ViT", after, peaks) == ""


def test_the_epochs_and_the_throughput_of_vit_are_one_measurement(project):
    """0.65 h over 0.43 h is 1.51 as far as both are rounded, so it proves nothing about 1.51."""
    rows = published_of(project)
    before, after, ratio = (rows[i].value for i in ("epoch-before", "epoch-after", "all-224"))
    assert (before - 0.005) / (after + 0.005) < ratio < (before + 0.005) / (after - 0.005)
    for hours, rate in (("epoch-before", "rate-before"), ("epoch-after", "rate-after")):
        assert rows[rate].value == pytest.approx(1_281_167 / rows[hours].value / 3600, rel=1e-4)
    claims = {claim.id: claim for claim in project.studies[VIT].claims}
    assert claims["epoch"].published is None
    assert not [row for row in rows.values() if row.metric == "samples_per_s" and row.headline]


@pytest.mark.parametrize(("chips", "possible"), [(8, False), (16, True)])
def test_the_v100_of_vit_tells_how_many_chips_there_were(project, chips, possible):
    """Its baseline in fp32, by 4.05 and the epoch time, against its peak."""
    rows = published_of(project)
    of_a100 = rows["rate-after"].flops_per_sample * rows["rate-after"].value / chips / 1e12
    of_v100 = of_a100 / rows["over-v100"].value
    assert (of_v100 < peaks_of(project, "v100")["fp32"]) == possible


def test_the_seconds_timed_follow_from_samples_and_rate(rates):
    found = rates(LOADING)
    seconds = {key: rate.timed_s for key, rate in found.items() if key.startswith("2023-08-gaudi2")}
    assert [round(one, 1) for one in seconds.values()] == [79.5, 64.0, 62.2, 56.4]
    assert found["2023-08-a100-w0"].timed_s == pytest.approx(5 * 9792 / 227.5)
    assert found["draft-gaudi2-w1"].timed_s is None, "its epochs are not stated"


def test_without_a_peak_or_flops_there_is_no_mfu(project):
    (row, *_) = project.published[LOADING]
    assert audit.rate(row, "fp64", {"fp32": 67.0}).mfu is None
    assert audit.rate(row, "fp32", {"fp32": None}).mfu is None
    bare = msgspec.structs.replace(row, flops_per_sample=None, timed_samples=None)
    assert audit.rate(bare, "fp32", {"fp32": 67.0}) == (None, None, None, "fp32")


def name(row: Published) -> str:
    return f"{row.device} {' '.join(map(str, row.levels.values()))}"


def test_editions_that_differ_for_one_cell_are_told_with_their_batches(project):
    (said,) = [s for s in audit.drift(project.published[LOADING], name) if "339.7" in s]
    assert said.startswith("a100-80gb 1 reference ddp: ")
    for words in ("249.6 (draft)", "254.7 (2023-06a)", "296.6 (2023-06b)", "339.7 (2023-08)"):
        assert words in said
    assert "36% apart" in said
    assert "batch 32 and 48" in said
    assert not [s for s in audit.drift(project.published[LOADING], name) if "gaudi3" in s]


def test_rates_that_hardly_differ_and_have_no_batch_are_told_as_such(project):
    rows = [
        msgspec.structs.replace(project.published[LOADING][0], batch_size=None, value=value)
        for value in (601.5, 601.6)
    ]
    (said,) = audit.drift(rows, name)
    assert said.endswith(": less than 0.5% apart.")


def test_one_edition_drifts_nowhere(project):
    of_post = [row for row in project.published[LOADING] if row.edition == "2023-08"]
    assert list(audit.drift(of_post, name)) == []
    assert list(audit.doubles(of_post, name)) == []


def test_a_number_of_parameters_that_the_model_does_not_have_is_told(project):
    (said,) = audit.miscounts(project.published[LOADING], lambda row: row.id)
    assert said.startswith("draft-parameters: 955,000,000 printed (draft), 866,612,737 counted")
    assert said.endswith(": +10.2%.")
    printed = next(row for row in project.published[LOADING] if row.id == "2023-08-parameters")
    wrong = msgspec.structs.replace(printed, value=872e6)
    assert list(audit.miscounts([printed], lambda row: row.id)) == [], "866M of 866.6M"
    assert len(list(audit.miscounts([wrong], lambda row: row.id))) == 1


def test_one_number_for_two_settings_is_told(project):
    first, second = sorted(audit.doubles(project.published[LOADING], name))
    assert "249.6 samples/s is given for a100-80gb 1 reference ddp and for a100-80gb 0" in first
    assert second.startswith("Edition draft: 678.6 samples/s is given for gaudi2 1")
