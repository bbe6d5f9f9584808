"""The columns of cells.csv that show what limits a cell, from records."""

from msgspec.structs import replace
from record_builder import make_plan, runs_of

from feedrate.results.collect import cell_rows, run_table

W1 = "workers=1~decode=host"


def cell_of(records):
    settings = make_plan()
    rows = cell_rows(run_table(records, settings), settings)
    return next(row for row in rows if row["cell"] == W1)


def with_slow_ranks(*ranks):
    """Runs that each found another rank slow by itself."""
    return [
        replace(
            record,
            measurement=replace(record.measurement, slow_rank=rank, slow_rank_ratio_low=1.4),
        )
        for record, rank in zip(runs_of(1, [10.0] * len(ranks)), ranks, strict=True)
    ]


def test_a_cell_names_the_slow_rank_that_all_its_runs_name():
    cell = cell_of(with_slow_ranks(1, 1, 1))
    assert cell["slow_rank"] == 1
    assert cell["limit"] == "slow rank"


def test_another_slow_rank_in_each_run_is_none():
    cell = cell_of(with_slow_ranks(0, 1))
    assert cell["slow_rank"] is None
    assert cell["limit"] != "slow rank"
