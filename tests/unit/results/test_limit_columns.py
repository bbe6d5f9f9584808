"""The columns of cells.csv that show what limits a cell, from records."""

from msgspec.structs import replace
from record_builder import make_ceilings, make_plan, runs_of

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
    assert cell["verdict"] == "rank-bound"


def test_another_slow_rank_in_each_run_is_none():
    cell = cell_of(with_slow_ranks(0, 1))
    assert cell["slow_rank"] is None
    assert cell["verdict"] != "rank-bound"


def test_a_ceiling_below_the_rate_is_told():
    low = make_ceilings(10.0, loader=30.0, model=9.0)
    records = [replace(record, ceilings=low) for record in runs_of(1, [10.0, 10.1])]
    cell = cell_of(records)
    assert cell["below_rate"] == "model"
    assert (cell["model_ratio"], cell["model_ratio_high"] < 1) == (0.9, True)
