"""The page of each source's published numbers, from the configuration as it is."""

from pathlib import Path

import msgspec
import pytest

from feedrate.config.plan import Plan
from feedrate.config.project import load_project, study_names
from feedrate.config.values import read_yaml
from feedrate.report.context import page_settings, study_context
from feedrate.report.pages import render
from feedrate.report.rows import Inputs
from feedrate.results.claims import claim_rows
from feedrate.results.files import CLAIMS, write_csv
from feedrate.results.study_plan import study_plan

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a study, without any run of ours."""
    config = read_yaml(ROOT / "config/config.yaml")
    project = load_project(ROOT, config | {"studies": study_names(ROOT)})
    results, none = tmp_path_factory.mktemp("audit"), Plan(runs={}, unsupported=[])
    for name in project.studies:
        rows = claim_rows([], study_plan(project, name, none, {}, ""))
        write_csv(results / name / "claims.csv", CLAIMS, rows)

    def page(study, without=None):
        """`without`: a key of the study's `adapt`."""
        known = project.studies[study]
        adapt = {key: value for key, value in known.adapt.items() if key != without}
        studies = project.studies | {study: msgspec.structs.replace(known, adapt=adapt)}
        changed = msgspec.structs.replace(project, studies=studies)
        plan = study_plan(changed, study, none, {}, "")
        table = next(one for one in plan.study.tables if one.name == "editions")
        return render(page_settings(study_context(plan), table), Inputs(results))

    return page


def test_a_number_has_its_time_and_its_share_of_the_peak(page):
    first = page("bridgetower-dataloading").split("601.5 samples/s")[1].split("</tr>")[0]
    assert "79.5 s" in first
    assert "26%" in first
    assert "in bf16" in first


@pytest.mark.parametrize(("without", "shares"), [("cuda", ("268%", "25%")), (None, ("33%", "25%"))])
def test_a_rate_above_the_peak_is_flagged(page, without, shares):
    rows = page("vit-speedups", without=without)
    parts = [rows.split(f"{rate} samples/s")[1].split("</tr>")[0] for rate in (547.5, 827.6)]
    assert all(share in part for share, part in zip(shares, parts, strict=True))
    assert ["above the peak" in part for part in parts] == [without == "cuda", False]


@pytest.mark.parametrize(
    ("study", "heading", "open_"),
    [
        ("gaudi-accelerations", "Gaudi2, 1 device", "the device or the number of devices"),
        ("vit-speedups", "A100 40GB, 8 devices", "the device or the number of devices"),
        ("flava-scaling", "A100 40GB, 8 devices", ""),
        ("bridgetower-dataloading", "Gaudi2, 8 devices", ""),
    ],
)
def test_a_device_that_the_source_does_not_name_is_said_to_be_assumed(page, study, heading, open_):
    table = page(study)
    told = f"{heading} (assumed: the source does not state {open_})"
    assert (told in table) == bool(open_)
    assert f"{heading}:" not in table or not open_
