"""The audit of the sources of the configuration, and the facts behind the claims."""

import msgspec
import pytest
from msgspec.structs import replace
from report_samples import configured, make_project, plan_of

from feedrate.report.audit import contradictions, facts_of_claim
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


def test_the_source_of_x141_contradicts_itself_eight_times():
    found = contradictions(configured("bridgetower-dataloading").plan)
    numbers = [one.numbers for one in found]
    assert numbers[:3] == [(678.6,), (249.6,), (955e6, 866_612_737)]
    apart = sorted(round(high / low - 1, 2) for low, high in numbers[3:])
    assert apart == [0.10, 0.17, 0.27, 0.32, 0.36]
    assert "workers = 1 and workers = 0" in found[0].text
    assert "866,612,737" in found[2].text


def test_a_printed_ratio_that_its_own_numbers_do_not_give_is_a_contradiction():
    project = make_project()
    study = project.studies["loading"]
    claims = [replace(study.claims[0], published=1.9), *study.claims[1:]]
    plan = plan_of(make_project(claims=claims))
    assert next(one.numbers for one in contradictions(plan)) == (1.9, pytest.approx(602.1 / 336.5))
    assert len(contradictions(plan)) == len(contradictions(plan_of(project))) + 1


def test_editions_within_the_tolerance_do_not_contradict_each_other():
    project = make_project()
    published = [replace(row, value=row.value * 1.1) for row in project.published["loading"][6:]]
    near = replace(project, published={"loading": [*project.published["loading"][:6], *published]})
    before, after = (len(contradictions(plan_of(one))) for one in (project, near))
    assert (before, after) == (2, 1), "601.5 against 532.4 becomes 601.5 against 585.6"
