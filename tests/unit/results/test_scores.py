"""Scores before and after training, from evaluation events."""

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from feedrate.jobs import events
from feedrate.jobs.events import Evaluation, RankEvents, Window
from feedrate.results.measurement import measure, scores
from feedrate.results.record import Record
from feedrate.results.statistics import paired_interval
from tiny_spec import tiny_spec

ROOT = Path(__file__).resolve().parents[3]


def score(right, of, metric="matching_accuracy"):
    return events.Score(on="test", metric=metric, right=right, of=of, chance=0.2)


BEFORE = Evaluation(rank=0, moment="before", scores=[score([0, 1, 0], [2, 2, 1])], seconds=1.5)
AFTER = Evaluation(rank=0, moment="after", scores=[score([2, 1, 1], [2, 2, 1])], seconds=2.0)


def test_a_score_has_the_shares_of_both_moments_and_the_interval_of_their_difference():
    (found,) = scores([BEFORE, AFTER])
    assert (found.before, found.after, found.n, found.chance) == (0.2, 0.8, 5, 0.2)
    assert found.gain_low < 0.6 < found.gain_high


def test_a_score_of_one_moment_has_no_gain():
    (found,) = scores([AFTER])
    assert (found.before, found.after, found.gain_low) == (None, 0.8, None)
    (empty,) = scores([Evaluation(rank=0, scores=[score([], [])])])
    assert empty.after is None


def test_a_measurement_has_the_accuracy_and_the_time_of_evaluations():
    window = Window(rank=0, first_step=2, last_step=4, steps=3, samples=12, wall_s=1.0)
    told = {0: RankEvents(window=window, evaluations=[BEFORE, AFTER])}
    found = measure(told, tiny_spec(), (), None)
    assert (found.accuracy_before, found.accuracy_after) == (0.2, 0.8)
    assert found.evaluation_s == 3.5
    other = Evaluation(rank=0, scores=[score([1], [1], "text_to_image_recall_at_1")])
    told = {0: RankEvents(window=window, evaluations=[other])}
    assert measure(told, tiny_spec(), (), None).accuracy_after is None


def test_single_answers_have_the_interval_of_agresti_and_min():
    # 100 pairs: 12 become right, 4 become wrong.
    before = [0] * 12 + [1] * 4 + [1] * 40 + [0] * 44
    after = [1] * 12 + [0] * 4 + [1] * 40 + [0] * 44
    low, high = paired_interval(before, after, [1] * 100)
    middle = (12.5 - 4.5) / 102
    half = 1.96 * math.sqrt(12.5 + 4.5 - (12.5 - 4.5) ** 2 / 102) / 102
    assert (low, high) == pytest.approx((middle - half, middle + half), abs=1e-4)


def test_answers_about_one_image_count_together():
    rng = np.random.default_rng(1)
    before, after = rng.integers(0, 2, size=(2, 60)).tolist()
    alone = paired_interval(before, after, [1] * 60)
    grouped = paired_interval([3 * b for b in before], [3 * a for a in after], [3] * 60)
    assert grouped == pytest.approx(alone), "three equal answers say no more than one"
    flat = paired_interval(
        [b for b in before for _ in "abc"], [a for a in after for _ in "abc"], [1] * 180
    )
    assert flat[1] - flat[0] < 0.7 * (grouped[1] - grouped[0])


def test_no_change_has_an_interval_and_one_image_has_none():
    low, high = paired_interval([1] * 50, [1] * 50, [1] * 50)
    assert -0.1 < low < 0 < high < 0.1
    assert paired_interval([1], [2], [3]) == (None, None)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(7)
    covered = []
    for _ in range(2000):
        before = rng.random(80) < 0.2
        after = np.where(rng.random(80) < 0.5, rng.random(80) < 0.5, before)
        low, high = paired_interval(before.astype(int), after.astype(int), [1] * 80)
        covered.append(low <= 0.5 * (0.5 - 0.2) <= high)
    assert 0.93 < np.mean(covered) < 0.98


def test_the_example_writes_a_card_of_a_run():
    card = runpy.run_path(str(ROOT / "examples/model_card.py"))["card"]
    file = ROOT / "tests/golden/results/bridgetower-learning/cpu/records.jsonl"
    record = json.loads(file.read_text().splitlines()[0])
    assert record.keys() <= set(Record.__struct_fields__)
    shown = card({"scores": [], **record})
    assert shown.startswith("---\nlibrary_name")
    assert "Started from random weights, trained on the dataset `generated`" in shown
    assert f"{record['measurement']['samples_per_s']:.4g} samples/s" in shown
    assert record["provenance"]["host"] not in shown
    one = {"on": "test", "metric": "accuracy", "before": 0.2, "after": 0.6, "chance": 0.2, "n": 9}
    assert "| test | accuracy | 20.0% | 60.0% | 20.0% | 9 |" in card({**record, "scores": [one]})
