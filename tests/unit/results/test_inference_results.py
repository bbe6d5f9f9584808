"""Inference in the result files: its columns, no verdict, no recommendation."""

from msgspec.structs import replace
from record_builder import collect_settings, make_record, make_spec, write_records

from feedrate.results.collect import cell_rows, run_table
from feedrate.results.files import rows_of as plain


def rows_of(tmp_path, task, **measured):
    records = []
    for workers, rate in ((0, 10.0), (1, 30.0)):
        for repeat in (1, 2):
            spec = make_spec(workers, task=task, repeat=repeat)
            record = make_record(rate * repeat, spec=spec, **measured)
            flags = ["avx512_bf16", "amx_bf16"]
            told = replace(record.provenance, bf16_instructions=flags)
            records.append(replace(record, provenance=told))
    settings = collect_settings(unsupported=[])
    runs = run_table(write_records(tmp_path, records), settings)
    return plain(runs), cell_rows(runs, settings)


def test_percentiles_task_and_instructions_have_columns(tmp_path):
    runs, cells = rows_of(tmp_path, "inference", step_time_p99_s=0.75)
    assert {run["task"] for run in runs} == {cell["task"] for cell in cells} == {"inference"}
    assert {run["step_time_p99_s"] for run in runs} == {0.75}
    assert {cell["step_time_p99_s"] for cell in cells} == {0.75}
    assert {run["bf16_instructions"] for run in runs} == {"avx512_bf16;amx_bf16"}


def test_nothing_is_recommended_and_nothing_limits(tmp_path):
    _, cells = rows_of(tmp_path, "inference")
    assert [cell["speedup"] for cell in cells] == [1.0, 3.0]
    assert {(c["verdict"], c["why"], c["recommended"], c["open"]) for c in cells} == {
        ("", "", False, "")
    }
