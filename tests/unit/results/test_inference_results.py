"""Inference in the result files: its columns, no verdict, no recommendation."""

from msgspec.structs import replace
from record_builder import make_plan, make_record, make_spec

from feedrate.results.collect import cell_rows, run_table


def rows_of(task, **measured):
    records = []
    for workers, rate in ((0, 10.0), (1, 30.0)):
        for repeat in (1, 2):
            spec = make_spec(workers, task=task, repeat=repeat)
            record = make_record(rate * repeat, spec=spec, **measured)
            flags = ["avx512_bf16", "amx_bf16"]
            told = replace(record.provenance, bf16_instructions=flags)
            records.append(replace(record, provenance=told))
    settings = make_plan(unsupported=[])
    runs = run_table(records, settings)
    return runs, cell_rows(runs, settings)


def test_percentiles_task_and_instructions_have_columns():
    runs, cells = rows_of("inference", step_time_p99_s=0.75)
    assert {run["task"] for run in runs} == {cell["task"] for cell in cells} == {"inference"}
    assert {run["step_time_p99_s"] for run in runs} == {0.75}
    assert {cell["step_time_p99_s"] for cell in cells} == {0.75}
    assert {run["bf16_instructions"] for run in runs} == {"avx512_bf16;amx_bf16"}


def test_no_cell_is_to_be_used_and_nothing_limits():
    _, cells = rows_of("inference")
    assert [cell["speedup"] for cell in cells] == [1.0, 3.0]
    assert {(c["limit"], c["gain_high"], c["use"]) for c in cells} == {("", None, False)}
