"""The benchmark of answers: what it simulates, and that intervals cover in golden runs."""

import pytest
from benchmarks import answers
from benchmarks.answers import Case, golden_coverage, outcome

from feedrate.results.answers import LIVE_MODEL, WINDOW


@pytest.mark.parametrize("measure", [WINDOW, LIVE_MODEL])
def test_of_clear_studies_answers_are_useful_right_and_cost_nothing(monkeypatch, measure):
    monkeypatch.setattr(answers, "STUDIES", 60)
    found = outcome(Case("4 settings, one is 18% slower", "1%", 3, measure))
    assert (found.useful, found.lost) == (100, 0)
    assert found.wrong <= 5
    assert found.wrong_limit <= 10


def test_of_noisy_studies_few_answers_are_useful(monkeypatch):
    monkeypatch.setattr(answers, "STUDIES", 60)
    found = outcome(Case("4 settings, one is 10% faster", "10%", 2, WINDOW))
    assert found.useful < 50
    assert found.lost > 1


@pytest.mark.parametrize("repeats", [2, 3])
def test_intervals_of_training_over_the_model_alone_cover_in_golden_runs(monkeypatch, repeats):
    monkeypatch.setattr(answers, "GOLDEN_STUDIES", 200)
    assert golden_coverage(repeats) >= 93
