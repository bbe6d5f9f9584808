"""The schema of measured values, and the columns that follow from it."""

import pytest

from feedrate.results.files import FACTORS, FILES, RUNS, with_factors


@pytest.mark.parametrize("columns", FILES.values(), ids=FILES)
def test_names_are_unique_and_every_column_is_described(columns):
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.description.endswith(".") for column in columns)
    assert all(column.unit for column in columns if column.name.endswith(("_s", "_gib", "_share")))


def test_factors_replace_their_placeholder():
    columns = with_factors(RUNS, {"workers": [1], "batch_size": [1]})
    names = [column.name for column in columns]
    assert names[:5] == ["study", "device", "cell", "workers", "site"]
    assert names.count("batch_size") == 1
    assert FACTORS not in names
