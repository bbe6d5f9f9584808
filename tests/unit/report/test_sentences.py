"""The rules of the page's sentences: which case a number falls in, and how bounds are rounded."""

import re

import pytest
from msgspec import convert
from msgspec.structs import replace

from feedrate.report.audit import ClaimFacts
from feedrate.report.html import sentence
from feedrate.report.rows import ClaimRow
from feedrate.results.record import Score

RIVALS = {
    "at_most": 0.171,
    "equals": "16 loader workers",
    "faster": "",
    "more_repeats": 6,
    "smallest": 0.03,
    "confidence": 0.95,
    "noise": None,
    "bounded": False,
}
SPEED = {
    "use": "2 loader workers",
    "rate": "45.0",
    "lacking": False,
}
GAIN = {"baseline": "no loader worker", "share": "19%", "at_least": 0.059, "drift_removed": True}


def speed(rivals=(), gain=(), **changed):
    facts = {"gain": GAIN | dict(gain), "rivals": RIVALS | dict(rivals)}
    return sentence("speed", **SPEED | changed, **facts)


def numbers(words):
    return re.findall(r"[+-]?\d+(?:\.\d+)?%?", words)


def test_a_gain_is_rounded_down_and_a_possible_loss_up():
    assert numbers(speed()) == ["2", "45.0", "19%", "5%", "16", "18%"]


@pytest.mark.parametrize(
    ("changed", "absent", "present"),
    [
        ({"gain": {"at_least": 0.0099}}, "19%", "no loader worker"),
        ({"gain": {"baseline": ""}}, "19%", "baseline"),
        ({"gain": {"at_least": None}}, "19%", "baseline"),
        ({"rivals": {"bounded": True}}, "18%", "16 loader workers"),
        ({"rivals": {"at_most": 0.029}}, "16 loader workers", "3%"),
        ({"rivals": {"at_most": 0.029}, "lacking": True}, "16 loader workers", "with a number"),
        ({"rivals": {"at_most": 0.51}}, "51%", "6 more repeats"),
        ({"rivals": {"faster": "3 loader workers"}}, "16", "than 3 loader workers"),
        ({"rivals": {"noise": 0.1}}, "more repeat", "10%"),
    ],
)
def test_each_case_of_the_fastest_setting(changed, absent, present):
    words = speed(**changed)
    assert absent not in words
    assert present in words


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.009, 0.0991, ["10%"]),
        (0.013, 0.118, ["1%", "12%"]),
        (0.249, 0.40, ["24%", "40%"]),
        (0.0, 0.05, ["5%"]),
        (0.0, 3.5, []),
        (None, None, []),
    ],
)
def test_the_gain_of_a_faster_loader_is_a_bound_or_a_range(low, high, shown):
    assert numbers(sentence("loader_gain", low=low, high=high)) == shown


@pytest.mark.parametrize("verdict", ["learns", "worse", ""])
def test_a_score_says_how_it_changed(verdict):
    score = Score(on="test", metric="accuracy", before=0.18, after=0.6, chance=0.2, n=120)
    facts = {
        "subject": "vit-tiny",
        "setting": "",
        "name": "right class",
        "learns": False,
        "worse": False,
    }
    words = sentence("learning", score=score, **facts | ({verdict: True} if verdict else {}))
    assert numbers(words) == ["60%", "18%", "20%"]
    assert ("vit-tiny learns" in words) == (verdict == "learns")
    assert ("worse" in words) == (verdict == "worse")


LARGEST = {
    "where": "",
    "level": "64",
    "label": "batch",
    "others": "",
    "equals": "",
    "rate": "310",
    "memory": "70 GiB",
    "use": "",
    "use_rate": "310",
    "usual": "",
    "usual_rate": "290",
    "more": "21%",
    "rivals": None,
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
    faster = {"use": "batch 32", "use_rate": "350", "usual": "ddp", "rivals": RIVALS}
    both = sentence("largest", **LARGEST | faster)
    assert numbers(both) == ["64", "310", "70", "32", "350", "21%", "290", "16", "18%"]


def test_of_equal_scores_the_faster_setting_is_to_be_used():
    facts = {"gain": "91%", "at_least": 0.788, "lower": 0.021, "baseline": "precision fp32"}
    words = sentence("use_for_learning", use="precision bf16", **facts)
    assert numbers(words.replace("bf16", "")) == ["91%", "78%", "3"]
    assert "fp32" in sentence("use_for_learning", use="", **facts)


def test_the_noise_of_scores_is_rounded_up_and_says_what_it_is_from():
    facts = {"equal": ["precision bf16"], "other": [], "margin": 0.0212}
    assert "3 points, the noise of seeds" in sentence("other_scores", **facts, repeated=True)
    assert "3 points, the noise of so few" in sentence("other_scores", **facts, repeated=False)


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
    obstacles = ["data"] if row.verdict == "not comparable" else []
    sides = {"differs": "decode device", "missing": missing, "obstacles": obstacles}
    sides |= {"by_levels": row.metric == "batch_size", "margin": 0.1}
    return sentence("claim", row=row, facts=facts, **sides)


def test_the_verdict_on_a_claim_has_its_facts():
    words = claim_words()
    for fact in ("1.41", "1.28", "decode device", "37%", "11%", "A and B"):
        assert fact in words
    assert not re.search(r"[.;][A-Z]", words)
    assert "1.30" in claim_words(published_verdict="not", recomputed_from_published=1.3)
    assert "1.28" not in claim_words(FACTS._replace(equal=None))
    assert "cannot" not in claim_words(published_value=None)
    measured = claim_words(measured=1.2, ci_low=1.1, ci_high=1.3, verdict="refuted")
    assert "1.20 (1.10 to 1.30): refuted" in measured
    assert "A and B" not in measured
    advice = claim_words(measured=1.2, verdict="refuted", of="advice")
    assert "1.20: not on this device" in advice
    unlike = claim_words(measured=1.2, verdict="not comparable")
    assert "1.20: not comparable (not stated or different: data)." in unlike


def test_the_other_claims_are_counted_and_those_that_go_the_other_way_are_named():
    counts = {"holds": 2, "not comparable": 10}
    contrary = [("A against B", "0.45, where 1.00 is claimed")]
    words = sentence("claims", counts=counts, contrary=contrary, more=3, comparable=False)
    assert numbers(words) == ["2", "10", "0.45", "1.00", "3"]
    assert "not comparable" in words
    none = sentence("claims", counts=counts, contrary=[], more=0, comparable=True)
    assert numbers(none) == ["2", "10"]
