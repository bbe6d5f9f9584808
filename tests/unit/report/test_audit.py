"""The audit of the sources of the configuration, and the facts behind the claims."""

import re

import msgspec
import pytest
from msgspec.structs import replace
from report_samples import configured, make_project, plan_of

from feedrate.report.audit import changes, contradictions, facts_of_claim
from feedrate.report.rows import ClaimRow
from feedrate.results.claims import claim_rows


def facts(study, claim):
    """The facts of a claim of a study without runs."""
    rows = [row for row in claim_rows([], study.plan) if row["claim"] == claim]
    row = {name: value for name, value in rows[0].items() if value is not None}
    return facts_of_claim(study, msgspec.convert(row, ClaimRow))


def test_the_published_x141_has_exactly_these_facts():
    study = configured("bridgetower-dataloading")
    found = facts(study, study.study.claim)
    assert found.printed == 1.41
    assert found.recomputed == pytest.approx(847.7 / 602.1)
    assert found.agrees
    assert found.equal == pytest.approx(768.7 / 602.1), "2 workers and the host's decoding"
    assert found.differs == {"decode": "device"}
    assert [(device, round(share, 2)) for device, share in found.mfu] == [
        ("Gaudi2", 0.37),
        ("H100", 0.11),
    ]
    assert found.warmup_inside == ["H100"]


def test_a_claim_with_equal_settings_on_both_sides_has_no_other_ratio():
    found = facts(configured("bridgetower-dataloading"), "gaudi2-h100-w2")
    assert found.equal is None
    assert found.differs == {}
    assert found.recomputed == pytest.approx(768.7 / 602.1)


def test_a_claim_about_one_device_names_its_share_of_the_peak_on_neither_side():
    found = facts(configured("bridgetower-dataloading"), "workers-gaudi2")
    assert found.mfu == []
    assert found.warmup_inside == []
    assert found.differs == {"workers": "2"}


def test_the_source_of_x141_contradicts_itself_within_its_editions():
    """Its update ran another batch and other software: its numbers are no contradiction."""
    plan = configured("bridgetower-dataloading").plan
    same, also, parameters, batch = contradictions(plan)
    assert "678.6" in same
    assert "workers = 1 and workers = 0" in same
    assert "249.6" in also
    assert "955,000,000" in parameters
    assert "866,612,737" in parameters
    assert "batch size: 48" in batch
    assert "40" in batch
    changed = changes(plan)
    apart = sorted(int(part) for words in changed for part in re.findall(r"(\d+)% apart", words))
    assert apart == [10, 17, 27, 32, 36]
    update = next(words for words in changed if "17% apart" in words)
    assert "639.7 (2023-06b, optimum-habana 1.6, batch 40)" in update
    assert "747.4 (2023-08, optimum-habana 1.7, batch 48)" in update


def test_about_10_times_does_not_contradict_10_9():
    assert contradictions(configured("flava-scaling").plan) == []


@pytest.mark.parametrize(
    ("software", "contradicts"), [("a 1.6", True), ("a 1.7", False), ("version not stated", False)]
)
def test_editions_with_the_same_batch_and_software_contradict_each_other(software, contradicts):
    project = make_project()
    row = project.published["loading"][0]
    rows = [
        replace(row, edition="2023-06", value=500.0, batch_size=48, software="a 1.6"),
        replace(row, edition="2023-08", value=600.0, batch_size=48, software=software),
    ]
    plan = plan_of(replace(project, published={"loading": rows}))
    here, elsewhere = contradictions(plan), changes(plan)
    if not contradicts:
        here, elsewhere = elsewhere, here
    assert len(here) == 1
    assert "20% apart between editions, 500 (2023-06" in here[0]
    assert elsewhere == []


def test_a_printed_ratio_that_its_own_numbers_do_not_give_is_a_contradiction():
    project = make_project()
    study = project.studies["loading"]
    claims = [replace(study.claims[0], published=1.9), *study.claims[1:]]
    against = contradictions(plan_of(make_project(claims=claims)))
    assert "1.90" in against[0]
    assert "1.79" in against[0], "602.1 / 336.5"
    assert len(against) == len(contradictions(plan_of(project))) + 1


def test_editions_within_the_tolerance_are_not_apart():
    project = make_project()
    published = [replace(row, value=row.value * 1.1) for row in project.published["loading"][6:]]
    near = replace(project, published={"loading": [*project.published["loading"][:6], *published]})
    before, after = (len(contradictions(plan_of(each))) for each in (project, near))
    assert (before, after) == (2, 1), "601.5 against 532.4 becomes 601.5 against 585.6"
