"""Claims about the largest level that fits."""

import pytest
from record_builder import claim_plan, make_plan, make_record, make_spec

from feedrate.config.study import Claim
from feedrate.results.claims import claim_rows
from feedrate.results.collect import run_table

FITS, FULL = "ok", "out_of_memory"


def row_of(statuses, *, metric="batch_size", expression="", **claimed):
    """The row of a claim about the largest level, where those of 0, 1 and 2 workers, with batches
    of 4, 8 and 12, ended like this."""
    records = []
    for (decode, workers), status in statuses.items():
        spec = make_spec(workers, decode, train={"batch_size": 4 + 4 * workers})
        rate = 10.0 + workers if status == FITS else None
        records.append(make_record(rate, spec=spec, status=status))
    claim = Claim(
        id="c",
        of="ours",
        text="As said.",
        expression=expression or "cpu[workers=largest] / cpu[workers=0]",
        metric=metric,
        **claimed or {"published": 2.0},
    )
    (row,) = claim_rows(run_table(records, make_plan()), claim_plan(claim))
    return row


def ends(decode, *statuses):
    """The ends of the levels of one decoder."""
    return {(decode, workers): status for workers, status in enumerate(statuses)}


def interval(row):
    return row["measured"], row["ci_low"], row["ci_high"]


def test_a_largest_level_ends_below_the_one_that_failed():
    row = row_of(ends("host", FITS, FITS, FULL))
    assert interval(row) == (2.0, 2.0, 3.0)
    assert row["verdict"] == "cannot tell"
    assert "cpu/workers=1~decode=host" in row["cells"]


BOTH = "cpu[workers=largest,decode=host] / cpu[workers=largest,decode=cache]"
EQUAL = ends("host", FITS, FITS, FULL) | ends("cache", FITS, FITS, FULL)


@pytest.mark.parametrize(
    ("claimed", "verdict"),
    [
        ({"published": 1.4}, "cannot tell"),
        ({"published": 1.5, "tolerance": 0.6}, "holds"),
        ({"published": 1.6, "tolerance": 0.1}, "cannot tell"),
        ({"published": 1.6}, "refuted"),
        ({"published": 0.5}, "refuted"),
        ({"more_than": 1}, "cannot tell"),
        ({"more_than": 1.5}, "refuted"),
        ({"more_than": 8 / 12}, "holds"),
        ({"no_less_than": 0.6}, "holds"),
    ],
)
def test_the_ratio_of_two_largest_levels_is_a_range(claimed, verdict):
    row = row_of(EQUAL, expression=BOTH, **claimed)
    assert interval(row) == (1.0, 8 / 12, 12 / 8)
    assert row["verdict"] == verdict


@pytest.mark.parametrize("third", [FITS, "failed"])
def test_a_side_above_which_nothing_failed_is_unbounded(third):
    least = 3.0 if third == FITS else 2.0
    above = ends("host", FITS, FITS, third)
    row = row_of(above, more_than=1)
    assert (interval(row), row["verdict"]) == ((least, least, None), "holds")
    inverse = "cpu[workers=0] / cpu[workers=largest]"
    below = row_of(above, expression=inverse, more_than=0.5)
    assert (interval(below), below["verdict"]) == ((1 / least, None, 1 / least), "refuted")
    printed = row_of(above, published=4.0)
    assert printed["verdict"] == "cannot tell", "it may be larger still"
    assert row_of(above, published=1.5)["verdict"] == "refuted"


@pytest.mark.parametrize("statuses", [(FITS, FITS, FITS), (FITS, FITS), (FITS, "missing", FULL)])
def test_a_rate_at_the_largest_level_needs_a_next_one_that_ran_out_of_memory(statuses):
    row = row_of(ends("host", *statuses), metric="samples_per_s")
    assert row["verdict"] == "no data here"
    assert "the next level did not run out of memory" in row["why"]
    known = row_of(ends("host", FITS, FITS, FULL), metric="samples_per_s")
    assert known["measured"] == 1.1


def test_a_level_without_a_result_lies_in_the_range():
    row = row_of(ends("host", FITS, "missing", FULL), more_than=1)
    assert interval(row) == (1.0, 1.0, 3.0)


def test_without_a_level_that_fits_there_is_no_data():
    assert row_of(ends("host", FULL))["verdict"] == "no data here"
