"""The audit of the sources of the configuration, the facts behind the claims, and their rows."""

import re

import msgspec
import pytest
from msgspec.structs import replace
from report_samples import configured, golden, make_project, plan_of

from feedrate.report.audit import changes, contradictions, facts_of_claim
from feedrate.report.rows import ClaimRow
from feedrate.report.tables.source import TABLES
from feedrate.results.claims import claim_rows

TABLE = TABLES[0]


def facts(study, claim):
    """The facts of a claim of a study without runs."""
    rows = [row for row in claim_rows([], study.plan) if row["claim"] == claim]
    row = {name: value for name, value in rows[0].items() if value is not None}
    return facts_of_claim(study, msgspec.convert(row, ClaimRow))


def test_the_published_x141_has_exactly_these_facts():
    study = configured("bridgetower-dataloading")
    found = facts(study, study.study.claim)
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


def test_a_claim_about_one_device_names_its_share_of_the_peak_on_neither_side():
    found = facts(configured("bridgetower-dataloading"), "workers-gaudi2")
    assert found.mfu == []
    assert found.warmup_inside == []
    assert found.differs == {"workers": "2"}


def test_the_source_of_x141_contradicts_itself_within_its_editions():
    """Its update ran another batch and other software: its numbers are no contradiction."""
    plan = configured("bridgetower-dataloading").plan
    batch, same, also, parameters = contradictions(plan)
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


def test_a_refuted_claim_says_on_what_and_every_verdict_what_it_compares():
    """Two workers against one on two cores say nothing about other machines."""
    shown = TABLE.shown(golden("gaudi-accelerations"))
    line = next(line for line in shown.lines if line.heading.text.startswith("More workers"))
    of = "technique two-workers over technique one-worker"
    assert line.heading.notes == [f"samples per second at network bridgetower: {of}"]
    verdict = line.fields[-1]
    assert verdict.text.endswith("not on this device")
    assert "on CPU, 2 cores, 4 runs" in verdict.notes


def test_a_tolerance_is_printed_where_it_decides():
    levels = TABLE.shown(golden("dataloading-levels"))
    line = next(line for line in levels.lines if "cache is no slower" in line.heading.text)
    assert line.heading.notes == ["share of the model alone: decode cache over decode host"]
    assert "tolerance: 3%" in line.fields[-1].notes
    strict = TABLE.shown(golden("gaudi-accelerations"))
    line = next(line for line in strict.lines if line.heading.text.startswith("One loader worker"))
    assert not any("tolerance" in note for note in line.fields[-1].notes)
