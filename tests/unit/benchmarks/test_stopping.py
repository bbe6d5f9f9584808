"""The simulation of `repeats: auto`: its studies are decided as their rates demand."""

import pytest
from benchmarks.stopping import CONFIDENCE, MOST, PLANNED, Case, simulate


@pytest.mark.parametrize(
    ("rates", "most", "decided", "repeats"),
    [
        ((1, 1.2), MOST, 1.0, PLANNED),  # clear after the planned repeats
        ((1, 1), PLANNED, 0.0, PLANNED),  # noise hides the answer, and the budget is spent
    ],
)
def test_clear_studies_are_decided_at_once_and_others_within_their_budget(
    rates, most, decided, repeats
):
    noise = 0.001 if decided else 0.3
    found = simulate(Case("a case", rates, noise), CONFIDENCE, most, studies=5)
    assert (found.decided, found.wrong, found.repeats) == (decided, 0.0, repeats)
