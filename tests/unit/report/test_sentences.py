"""The rules of the page's sentences: which case a number falls in, and how bounds are rounded."""

import re

import pytest
from msgspec import convert
from msgspec.structs import replace

from feedrate.report.audit import ClaimFacts
from feedrate.report.html import sentence
from feedrate.report.rows import ClaimRow
from feedrate.results.record import Score

SPEED = {
    "use": "2 loader workers",
    "rate": "45.0",
    "share": 0.95,
    "drift_removed": True,
    "baseline": "no loader worker",
    "gain": "19%",
    "at_least": 0.059,
    "at_most": 0.171,
    "nearest": "16 loader workers",
    "nearest_change": "-7% to +17%",
    "more_repeats": 6,
    "smallest": 0.03,
    "confidence": 0.95,
    "single": False,
    "lacking": False,
}


def speed(**changed):
    return sentence("speed", **SPEED | changed)


def numbers(words):
    return re.findall(r"[+-]?\d+(?:\.\d+)?%?", words)


def test_a_gain_is_rounded_down_and_a_possible_loss_up():
    words = speed()
    assert numbers(words) == ["2", "45.0", "95%", "19%", "5%", "16", "18%", "-7%", "+17%"]


@pytest.mark.parametrize(
    ("changed", "absent", "present"),
    [
        ({"at_least": 0.0099}, "19%", "no loader worker"),
        ({"baseline": ""}, "19%", "baseline"),
        ({"at_least": None}, "19%", "baseline"),
        ({"at_most": 0.029}, "16 loader workers", "3%"),
        ({"at_most": 0.51}, "51%", "6 more repeats"),
    ],
)
def test_each_case_of_the_fastest_setting(changed, absent, present):
    words = speed(**changed)
    assert absent not in words
    assert present in words


def test_single_runs_are_named():
    assert len(speed(single=True)) > len(speed())


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.012, 0.0991, ["10%"]),
        (0.013, 0.118, ["1%", "12%"]),
        (0.249, 0.40, ["24%", "40%"]),
        (0.0, 0.05, ["5%"]),
        (0.0, 3.5, []),
        (None, None, []),
    ],
)
def test_the_gain_of_a_faster_loader_is_a_bound_or_a_range(low, high, shown):
    assert numbers(sentence("loader_gain", low=low, high=high, share=0.9)) == shown


def test_a_loader_that_costs_nothing_measurable_has_no_gain_beside_it():
    words = sentence("loader_gain", low=0.0, high=0.0991, share=1.01)
    assert numbers(words) == ["0%", "10%"]
    assert "faster" not in words


def test_a_share_of_all_of_the_model_is_no_number():
    assert "100%" not in speed(share=0.995)
    assert "104%" not in speed(share=1.04)
    assert "95%" not in speed(share=None)


@pytest.mark.parametrize("verdict", ["learns", "worse", ""])
def test_a_score_says_how_it_changed(verdict):
    score = Score(on="test", metric="accuracy", before=0.18, after=0.6, chance=0.2, n=120)
    facts = {"subject": "vit-tiny", "name": "right class", "learns": False, "worse": False}
    words = sentence("learning", score=score, **facts | ({verdict: True} if verdict else {}))
    assert numbers(words) == ["60%", "18%", "20%"]
    assert ("vit-tiny learns." in words) == (verdict == "learns")
    assert ("worse" in words) == (verdict == "worse")


LARGEST = {
    "where": "",
    "level": "64",
    "label": "batch",
    "others": "",
    "equals": "",
    "rate": "310",
    "memory": "70 GiB",
    "fastest": "",
    "fast_rate": "310",
    "use": "",
    "use_rate": "",
    "tried": 5,
    "beyond_failed": False,
    "beyond_missing": False,
    "out_of_memory": "",
    "beyond_unsupported": False,
}


def test_the_largest_level_says_how_the_limit_is_known():
    known = sentence("largest", **LARGEST | {"out_of_memory": "128"})
    failed = sentence("largest", **LARGEST | {"beyond_failed": True})
    open_end = sentence("largest", **LARGEST)
    only = sentence("largest", **LARGEST | {"tried": 1})
    elsewhere = sentence("largest", **LARGEST | {"beyond_unsupported": True})
    assert "128" in known
    assert len({known, failed, open_end, only, elsewhere}) == 5
    both = sentence("largest", **LARGEST | {"fastest": "batch 32", "fast_rate": "350"})
    assert numbers(both) == ["64", "310", "70", "32", "350"]


FACTS = ClaimFacts(equal=1.277, differs={}, mfu=[("A", 0.37), ("B", 0.11)], warmup_inside=["B"])
ROW = convert(
    {
        "study": "s",
        "claim": "c",
        "statement": "A against B",
        "published_value": 1.41,
        "recomputed_from_published": 1.408,
        "published_verdict": "consistent",
        "verdict": "no data here",
    },
    ClaimRow,
)


def claim_words(facts=FACTS, **changes):
    row = replace(ROW, **changes)
    missing = ["A", "B"]
    return sentence("claim", row=row, facts=facts, differs="decode device", missing=missing)


def test_the_verdict_on_a_claim_has_its_facts():
    words = claim_words()
    for fact in ("1.41", "1.28", "decode device", "37%", "11%", "A and B"):
        assert fact in words
    assert not re.search(r"[.;][A-Z]", words)
    assert "1.30" in claim_words(published_verdict="not", recomputed_from_published=1.3)
    assert "1.28" not in claim_words(FACTS._replace(equal=None))
    assert "cannot" not in claim_words(published_value=None)
    measured = claim_words(measured=1.2, ci_low=1.1, ci_high=1.3, verdict="refuted")
    assert "1.20 (1.10 to 1.30), refuted" in measured
    assert "A and B" not in measured
    advice = claim_words(measured=1.2, verdict="refuted", of="advice")
    assert "1.20, not on this device" in advice
