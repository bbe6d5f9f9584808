"""Claims about the largest level that fits."""

import pytest
from record_builder import claim_plan, make_plan, make_record, make_spec

from feedrate.config.study import Claim
from feedrate.results.claims import claim_rows
from feedrate.results.collect import run_table


def verdict(statuses, *, metric="batch_size"):
    """The row of a claim about the largest level, where levels ended like this."""
    records = []
    for workers, status in statuses.items():
        spec = make_spec(workers, train={"batch_size": 4 + 4 * workers})
        rate = 10.0 + workers if status == "ok" else None
        records.append(make_record(rate, spec=spec, status=status))
    claim = Claim(
        id="c",
        of="ours",
        text="As said.",
        expression="cpu[workers=largest] / cpu[workers=0]",
        published=2.0,
        metric=metric,
    )
    runs = run_table(records, make_plan())
    (row,) = claim_rows(runs, claim_plan(claim))
    return row


def test_a_claim_names_the_largest_level_that_fits():
    row = verdict({0: "ok", 1: "ok", 2: "out_of_memory"})
    assert (row["measured"], row["ci_low"], row["ci_high"]) == (2.0, 2.0, 2.0)
    assert row["verdict"] == "holds"
    assert "cpu/workers=1~decode=host" in row["cells"]


@pytest.mark.parametrize(
    "statuses",
    [
        {0: "ok", 1: "ok", 2: "ok"},
        {0: "ok", 1: "ok", 2: "failed"},
        {0: "out_of_memory"},
        {0: "ok", 1: "missing", 2: "out_of_memory"},
    ],
)
def test_no_level_is_the_largest_before_the_next_one_ran_out_of_memory(statuses):
    assert verdict(statuses)["verdict"] == "no data here"
