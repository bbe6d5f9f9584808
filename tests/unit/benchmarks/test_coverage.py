"""The simulation behind the intervals: its runs keep the recorded noise, and its shares add up."""

import math
from statistics import fmean, stdev

import pytest
from benchmarks import coverage
from benchmarks.coverage import REPEATS, Trouble, recorded


def test_recorded_runs_keep_the_noise_between_runs_of_their_cell():
    """The levels of a cell have the mean 0, and the scatter of runs around an unknown mean."""
    levels = [math.log(fmean(steps)) for steps in recorded()]
    assert len(levels) % 3 == 0, "cells have three runs; the one with a single run says nothing"
    for start in range(0, len(levels), 3):
        cell = levels[start : start + 3]
        assert fmean(cell) == pytest.approx(0.0, abs=1e-9)
        assert stdev(cell) > 0
    assert sum(level == 0.0 for level in levels) == 0


def test_shares_are_of_all_studies(monkeypatch):
    monkeypatch.setattr(coverage, "STUDIES", 16)
    covered = coverage.coverage(Trouble(), REPEATS[0])
    assert all(0.0 <= share <= 100.0 for share in covered)
    assert min(covered) > 50.0
