"""Where a statement about a loader's speed begins to hold, and what is said where it is unknown."""

from types import SimpleNamespace

import pytest

from feedrate.config.study import LoaderClaim
from feedrate.report.tables.loader_claims import measured_ratios, other_pixels, where_it_holds


def claim(ratio=2.0, workers=32):
    return LoaderClaim(
        id="c",
        text="Twice as fast",
        loader="other",
        over="torch",
        ratio=ratio,
        workers=workers,
        edition="2025-01",
        source="s",
    )


def run(loader, workers, repeat, rate):
    levels = {"loader": loader, "workers": workers}
    return SimpleNamespace(levels=levels, repeat=repeat, loader_samples_per_s=rate)


def test_ratios_are_of_the_same_repeat_and_range_over_them():
    runs = [run("torch", 1, 1, 100), run("torch", 1, 2, 50), run("other", 1, 1, 150)]
    runs += [run("other", 1, 2, 100), run("torch", 2, 1, 100), run("other", 4, 1, 100)]
    assert measured_ratios(claim(), runs) == {1: (1.5, 2.0)}


@pytest.mark.parametrize(
    ("found", "workers", "says"),
    [
        ({1: (1.0, 1.1), 2: (1.9, 2.2)}, 32, "Holds from 2 workers on."),
        ({1: (2.0, 2.0), 2: (2.5, 2.5)}, 2, "Holds from 1 worker on."),
        ({1: (1.0, 1.1), 2: (1.1, 1.2)}, 32, "up to 2 workers. Beyond that, this machine"),
        ({1: (1.0, 1.1), 2: (1.1, 1.2)}, 2, "Does not hold with its own 2 workers."),
        ({2: (1.0, 3.0)}, 32, "the repeats disagree"),
        ({1: (2.0, 2.1), 2: (1.0, 1.1)}, 32, "Holds only with 1 worker."),
    ],
)
def test_a_loss_is_told_like_a_win(found, workers, says):
    assert says in where_it_holds(claim(workers=workers), found, [])


def test_a_loader_that_was_not_measured_says_why():
    cell = SimpleNamespace(levels={"loader": "other"}, cause="It is not installed.")
    assert where_it_holds(claim(), {}, [cell]) == "Cannot tell: not measured. It is not installed."


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        (0.36, 0.36, True),
        (0.86, 0.36, True),
        (0.87, 0.36, False),
        (4.5, 0.0, False),
        (None, 0, True),
    ],
)
def test_a_rate_with_other_pixels_does_not_count(one, other, counts):
    cells = [
        SimpleNamespace(levels={"loader": name}, pixel_mean_abs_diff=distance)
        for name, distance in (("other", one), ("torch", other))
    ]
    assert (other_pixels(claim(), cells) == "") is counts
