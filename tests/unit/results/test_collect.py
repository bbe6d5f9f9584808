import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from record_builder import (
    as_literal,
    collect_settings,
    collect_study,
    make_record,
    make_spec,
    runs_of,
    write_records,
)

from feedrate.cli.jobs import run as run_job
from feedrate.config.errors import ConfigError
from feedrate.config.plan import Shared
from feedrate.config.study import Factor
from feedrate.core.errors import ExpectedError
from feedrate.results.assemble import current_record, parse_logs
from feedrate.results.collect import cell_rows, collect_results, run_table
from feedrate.results.columns import CELLS, RUNS, for_studies
from feedrate.results.record import read_record
from feedrate.results.settings import DeviceFacts
from feedrate.results.tables import (
    confirm_results,
    frame_of,
    read_csv,
    remove_damaged,
    write_csv,
)
from feedrate.results.tables import rows_of as plain
from run_folder import write_run


def rows_of(tmp_path, records, **changes):
    settings = collect_settings(**changes)
    return plain(run_table(write_records(tmp_path, records), settings)), settings


def cells_of(tmp_path, records, **changes):
    rows, settings = rows_of(tmp_path, records, **changes)
    return {row["cell"]: row for row in cells_from(rows, settings)}


def cells_from(rows, settings):
    return cell_rows(frame_of(rows, for_studies(RUNS, settings.studies)), settings)


W0, W1, W2 = (f"workers={w}~decode=host" for w in range(3))


def test_one_row_a_run_and_one_a_cell_that_is_not_supported(tmp_path):
    rows, _ = rows_of(tmp_path, runs_of(1, [10.0, 11.0]))
    assert [(r["cell"], r["repeat"], r["status"]) for r in rows] == [
        (W1, 1, "ok"),
        (W1, 2, "ok"),
        ("workers=1~decode=device", 1, "unsupported"),
    ]
    assert rows[2]["cause"] == "cpu lacks the capability decode_device."
    assert rows[0]["workers"] == 1
    assert rows[0]["batch_size"] == 4
    assert rows[0]["model"] == "bridgetower-tiny"
    assert rows[0]["trainer_samples_per_s"] == 10.0


def shared(device="cpu"):
    """The cell with two workers, measured as that with one."""
    levels = {"workers": 2, "decode": "host"}
    return Shared(study="loading", device=device, cell=W2, levels=levels, measured_as=W1)


def test_a_cell_that_shares_the_runs_of_another_has_its_numbers(tmp_path):
    rows, settings = rows_of(tmp_path, runs_of(1, [10.0, 12.0]), unsupported=[], shared=[shared()])
    assert [(r["cell"], r["workers"], r["repeat"], r["measured_as"]) for r in rows] == [
        (W1, 1, 1, None),
        (W1, 1, 2, None),
        (W2, 2, 1, W1),
        (W2, 2, 2, W1),
    ]
    assert [row["record"] for row in rows[:2]] == [row["record"] for row in rows[2:]]
    cells = {cell["cell"]: cell for cell in cells_from(rows, settings)}
    assert cells[W2]["samples_per_s"] == cells[W1]["samples_per_s"] == 11.0
    assert (cells[W1]["measured_as"], cells[W2]["measured_as"]) == (None, W1)


def test_a_shared_run_is_one_choice_and_one_failure(tmp_path):
    records = [*runs_of(0, [5.0, 5.1]), *runs_of(1, [10.0, 12.0])]
    rows, settings = rows_of(tmp_path, records, unsupported=[], shared=[shared()])
    cells = {cell["cell"]: cell for cell in cells_from(rows, settings)}
    assert [name for name, cell in cells.items() if cell["recommended"]] == [W1]
    for row in rows:
        row["status"] = "failed"
    write_csv(tmp_path / "results.csv", for_studies(RUNS, settings.studies), rows)
    with pytest.raises(ExpectedError, match="4 of 4 runs did not end well"):
        confirm_results(tmp_path / "results.csv", tmp_path / "confirmed.txt")


def test_rows_stand_in_the_order_of_the_configuration(tmp_path):
    records = [*runs_of(2, [3.0]), *runs_of(0, [1.0, 2.0])[::-1]]
    rows, _ = rows_of(tmp_path, records, unsupported=[])
    assert [(r["workers"], r["repeat"]) for r in rows] == [(0, 1), (0, 2), (2, 1)]


@pytest.mark.parametrize(
    ("workers", "decode", "count", "cores", "more"),
    [
        (2, "host", 1, 2, False),
        (16, "host", 1, 2, True),
        (2, "host", 8, 12, True),
        (16, "device", 1, 2, False),
        (16, "host", 1, None, False),
    ],
)
def test_whether_loaders_have_more_processes_than_cores(
    tmp_path, workers, decode, count, cores, more
):
    record = make_record(spec=make_spec(workers, decode, count=count), cores=cores)
    (row,) = (row for row in rows_of(tmp_path, [record])[0] if row["status"] == "ok")
    assert row["oversubscribed"] is more
    settings = collect_settings()
    cell = next(cell for cell in cells_from([row], settings))
    assert ("share" in cell["why"]) is more


def test_a_record_of_an_unknown_study_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="study 'other'"):
        rows_of(tmp_path, [make_record(spec=make_spec(study="other"))])


def test_numbers_of_an_invalid_run_stay_in_its_row_and_out_of_all_else(tmp_path):
    records = [
        *runs_of(0, [10.0]),
        make_record(99.0, spec=make_spec(0, repeat=2), status="invalid", cause="MFU is 120%."),
    ]
    rows, settings = rows_of(tmp_path, records)
    assert rows[1]["samples_per_s"] == 99.0
    cell = cells_from(rows, settings)[0]
    assert (cell["samples_per_s"], cell["runs"], cell["ok_runs"]) == (10.0, 2, 1)
    assert (cell["status"], cell["invalid_runs"]) == ("ok", 1)
    assert cell["cause"] == "MFU is 120%.", "why one of its runs does not count"


def test_a_cell_has_medians_interval_spread_and_speed_up(tmp_path):
    cells = cells_of(tmp_path, [*runs_of(0, [10.0, 9.0, 11.0]), *runs_of(2, [20.5, 21.0, 21.5])])
    zero, two = cells[W0], cells[W2]
    assert zero["samples_per_s"] == 10.0
    assert zero["ci_low"] < 9.0 < 11.0 < zero["ci_high"], "wider than three values"
    assert zero["ci_high"] / zero["ci_low"] == pytest.approx(two["ci_high"] / two["ci_low"])
    assert (zero["noisy"], two["noisy"]) == (True, False)
    assert (zero["speedup"], zero["speedup_ci_low"]) == (1.0, 1.0)
    assert two["speedup"] == pytest.approx(2.1)
    assert two["speedup_ci_low"] < 20.5 / 11 < 21.5 / 9 < two["speedup_ci_high"]


def test_a_cell_tells_energy_and_what_a_million_samples_cost(tmp_path):
    records = [
        replace(run, measurement=replace(run.measurement, energy_j_per_sample=joules))
        for run, joules in zip(runs_of(0, [10.0] * 3), (2.0, 3.0, 7.0), strict=True)
    ]
    cells = cells_of(tmp_path, records, price_usd_per_hour={"cpu": 3.6})
    assert cells[W0]["energy_j_per_sample"] == 3.0
    assert cells[W0]["usd_per_million_samples"] == pytest.approx(100.0)  # 0.001 USD/s at 10/s
    free = cells_of(tmp_path, records, price_usd_per_hour={"cpu": None})
    assert free[W0]["usd_per_million_samples"] is None
    assert cells["workers=1~decode=device"]["usd_per_million_samples"] is None


def test_one_run_gives_no_interval_and_no_noise(tmp_path):
    cell = cells_of(tmp_path, runs_of(1, [10.0]))[W1]
    assert (cell["ci_low"], cell["spread"], cell["noisy"]) == (None, None, False)
    assert cell["speedup"] is None


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["failed", "ok"], "ok"),
        (["failed", "out_of_memory"], "out_of_memory"),
        (["invalid", "failed"], "failed"),
        (["invalid"], "invalid"),
    ],
)
def test_the_state_of_a_cell(tmp_path, statuses, expected):
    records = [
        make_record(
            spec=make_spec(0, repeat=k),
            status=status,
            cause="" if status == "ok" else f"It is {status}.",
        )
        for k, status in enumerate(statuses, start=1)
    ]
    cell = cells_of(tmp_path, records)[W0]
    assert cell["status"] == expected
    assert cell["runs"] == len(statuses)
    if expected != "ok":
        assert cell["cause"] == f"It is {expected}."
        assert cell["samples_per_s"] is None
        assert cell["why"] == cell["cause"]
    assert (
        cell["verdict"] == {"ok": "mixed", "out_of_memory": "memory-pressed"}.get(expected, "")
        or expected == "ok"
    )


def test_the_verdict_uses_medians_and_the_devices_memory(tmp_path):
    records = runs_of(1, [10.0, 10.1, 10.2], data_wait_share=0.3, model=20.0)
    assert cells_of(tmp_path, records)[W1]["verdict"] == "input-bound"
    records = runs_of(1, [10.0], data_wait_share=0.01, model=10.0, peak_memory_gib=79.0)
    cells = cells_of(tmp_path, records, memory_gib={"cpu": 80.0})
    assert cells[W1]["verdict"] == "memory-pressed"


def test_a_cell_that_is_not_supported_has_no_runs(tmp_path):
    cell = cells_of(tmp_path, runs_of(1, [10.0]))["workers=1~decode=device"]
    assert (cell["status"], cell["runs"], cell["ok_runs"]) == ("unsupported", 0, 0)
    assert cell["verdict"] == ""
    assert cell["recommended"] is False


def test_a_factor_may_not_bear_the_name_of_a_result():
    study = collect_study(
        factors={"status": Factor(sets="loader.workers", levels=[0])}, baseline={"status": 0}
    )
    with pytest.raises(ConfigError, match=r"factors.status: 'status' is a column of the results"):
        for_studies(RUNS, {"loading": study})


def test_a_factor_that_bears_the_name_of_a_setting_is_its_column():
    study = collect_study(
        factors={"batch_size": Factor(sets="train.batch_size", levels=[8, 16])},
        baseline={"batch_size": 8},
    )
    names = [column.name for column in for_studies(RUNS, {"loading": study})]
    assert names.count("batch_size") == 1


def command(tmp_path, records, settings=None):
    (tmp_path / "list.txt").write_text("\n".join(records) + "\n")
    return [
        "--records-list", str(tmp_path / "list.txt"),
        "--settings", as_literal(settings or collect_settings()),
        "--out-csv", str(tmp_path / "out/results.csv"),
        "--out-parquet", str(tmp_path / "out/results.parquet"),
        "--cells", str(tmp_path / "out/cells.csv"),
    ]  # fmt: skip


def test_the_command_writes_three_files_that_agree(tmp_path):
    records = write_records(tmp_path, [*runs_of(0, [10.0, 10.5]), *runs_of(2, [20.0])])
    assert run_job("collect-results", command(tmp_path, records)) == 0
    settings = collect_settings()
    rows = read_csv(tmp_path / "out/results.csv", RUNS)
    table = pq.read_table(tmp_path / "out/results.parquet")
    assert table.column_names == [c.name for c in for_studies(RUNS, settings.studies)]
    assert table.column_names == list(rows[0])
    for row, other in zip(rows, table.to_pylist(), strict=True):
        assert row == {k: ("" if v is None and row[k] == "" else v) for k, v in other.items()}
    field = table.schema.field("samples_per_s")
    assert field.metadata[b"unit"] == b"samples/s"
    cells = read_csv(tmp_path / "out/cells.csv", CELLS)
    assert [c["samples_per_s"] for c in cells] == [10.25, None, 20.0]


def test_arguments_may_come_from_a_file(tmp_path):
    arguments = command(tmp_path, write_records(tmp_path, runs_of(0, [10.0])))
    (tmp_path / "arguments").write_text("\n".join(arguments))
    assert run_job("collect-results", [f"@{tmp_path / 'arguments'}"]) == 0
    assert (tmp_path / "out/results.parquet").exists()


@pytest.mark.parametrize("content", ["{}", "nonsense", json.dumps({"schema_version": 99}), None])
def test_a_record_that_is_damaged_or_missing_is_made_again_from_its_logs(tmp_path, content):
    spec = make_spec()
    run = write_run(tmp_path / "cpu/workers=0~decode=host/rep1", spec=spec)
    device = DeviceFacts()
    record, _ = current_record(run, device)
    (run / "record.json").write_text(content) if content else (run / "record.json").unlink()
    assert run_job("collect-results", command(tmp_path, [str(run / "record.json")])) == 0
    assert read_record(run / "record.json") == record
    row = read_csv(tmp_path / "out/results.csv", RUNS)[0]
    assert row["status"] == record.status
    assert row["cause"] == record.cause


def test_logs_that_changed_after_their_record_make_the_run_invalid(tmp_path):
    run = write_run(tmp_path / "cpu/workers=0~decode=host/rep1", spec=make_spec())
    current_record(run, DeviceFacts())
    (run / "train.log").write_text("something else\n")
    assert run_job("collect-results", command(tmp_path, [str(run / "record.json")])) == 0
    row = read_csv(tmp_path / "out/results.csv", RUNS)[0]
    assert row["status"] == "invalid"
    assert "logs_unchanged" in row["failed_checks"].split(";")


def test_a_run_without_logs_costs_the_others_nothing(tmp_path):
    records = write_records(tmp_path, runs_of(0, [10.0]))
    records.append(str(tmp_path / "loading/cpu/workers=1~decode=host/rep2/record.json"))
    assert run_job("collect-results", command(tmp_path, records)) == 0
    rows = read_csv(tmp_path / "out/results.csv", RUNS)
    assert [(row["status"], row["repeat"]) for row in rows[:2]] == [("ok", 1), ("failed", 2)]
    assert "spec.json: no such file" in rows[1]["cause"]


@pytest.fixture
def collected(tmp_path, monkeypatch):
    """Two runs of a study, parsed and collected, with a page; the folder of the study."""
    monkeypatch.chdir(tmp_path)
    study = Path("results/loading")
    runs = [study / f"cpu/workers=0~decode=host/rep{k}" for k in (1, 2)]
    for repeat, run in enumerate(runs, start=1):
        write_run(run, spec=make_spec(repeat=repeat))
    Path("runs").write_text("\n".join(map(str, runs)))
    parse_logs(Path("runs"), DeviceFacts(), "x", study / "cpu/records.json")
    Path("list").write_text("\n".join(f"{run}/record.json" for run in runs))
    tables = (study / name for name in ("results.csv", "results.parquet", "cells.csv"))
    collect_results(Path("list"), collect_settings(), *tables)
    (study / "tables").mkdir()
    for page in (study / "tables/cells.html", Path("results/overview.html")):
        page.write_text("<p>A page.</p>")
    assert remove_damaged(Path("results")) == []
    return study


def test_a_result_file_that_changed_is_removed_with_all_that_follows(collected, capsys):
    file = collected / "results.csv"
    file.write_text(file.read_text()[:-20])
    assert remove_damaged(Path("results")) == [file]
    assert "results.csv changed after it was written" in capsys.readouterr().err
    left = {path.name for path in Path("results").rglob("*") if path.is_file()}
    assert left.isdisjoint({"results.csv", "cells.csv", "cells.html", "overview.html"})
    assert left >= {"records.json", "record.json", "events.jsonl", "outcome.json"}


def test_a_record_that_changed_is_removed_and_parsed_again(collected):
    record = collected / "cpu/workers=0~decode=host/rep2/record.json"
    whole = record.read_text()
    record.write_text(whole.replace('"invalid"', '"ok"'))
    assert remove_damaged(Path("results")) == [record]
    assert not (collected / "cpu/records.json").exists()
    assert not (collected / "cells.csv").exists()
    assert (collected / "cpu/workers=0~decode=host/rep1/record.json").exists()
    parse_logs(Path("runs"), DeviceFacts(), "x", collected / "cpu/records.json")
    assert record.read_text() == whole


def test_files_of_earlier_versions_are_kept(tmp_path):
    (tmp_path / "results.csv").write_text("study\na\n")
    assert remove_damaged(tmp_path) == []


def test_levels_of_several_kinds_become_text(tmp_path):
    study = collect_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=[0, "many"]),
            "decode": Factor(sets="loader.decode", levels=["host"]),
        }
    )
    settings = collect_settings(studies={"loading": study}, unsupported=[])
    records = write_records(tmp_path, runs_of(0, [10.0]))
    assert run_job("collect-results", command(tmp_path, records, settings)) == 0
    row = pq.read_table(tmp_path / "out/results.parquet").to_pylist()[0]
    assert row["workers"] == "0"


def test_rows_survive_the_round_trip(tmp_path):
    rows, settings = rows_of(
        tmp_path, [make_record(1 / 3, status="invalid", cause='A "cause", with\ta tab and é')]
    )
    columns = for_studies(CELLS, settings.studies)
    cells = cells_from(rows, settings)
    write_csv(tmp_path / "cells.csv", columns, cells)
    back = read_csv(tmp_path / "cells.csv", columns)
    assert back == [
        {
            c.name: "" if c.kind == "text" and row.get(c.name) is None else row.get(c.name)
            for c in columns
        }
        for row in cells
    ]
    with (tmp_path / "cells.csv").open() as stream:
        assert next(csv.reader(stream))[:3] == ["study", "device", "cell"]


def test_a_table_with_a_wrong_field_names_file_and_line(tmp_path):
    (tmp_path / "x.csv").write_text("study,repeat\na,one\n")
    with pytest.raises(ValueError, match=r"x.csv, line 2"):
        read_csv(tmp_path / "x.csv", RUNS)


def test_within_a_factor_each_level_has_its_own_baseline(tmp_path):
    study = collect_study(within=["workers"])
    device = make_record(30.0, spec=make_spec(2, "device"))
    rows = [*runs_of(0, [10.0]), *runs_of(2, [20.0]), device]
    cells = cells_of(tmp_path, rows, studies={"loading": study})
    speedups = [cell["speedup"] for cell in cells.values() if cell["status"] == "ok"]
    assert speedups == [1.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("steps_per_epoch", "steps", "short"),
    [(19, 100, True), (20, 100, False), (11, 12, True), (12, 12, False), (None, 100, False)],
)
def test_epochs_of_fewer_than_twenty_steps_are_short(tmp_path, steps_per_epoch, steps, short):
    """A run of fewer steps needs no more than these."""
    spec = make_spec(protocol={"steps": steps, "warmup_steps": 2})
    record = make_record(10.0, spec=spec, steps_per_epoch=steps_per_epoch)
    (row,), _ = rows_of(tmp_path, [record], unsupported=[])
    assert (row["steps_per_epoch"], row["short_epochs"]) == (steps_per_epoch, short)
    (cell,) = cells_of(tmp_path, [record], unsupported=[]).values()
    assert (cell["steps_per_epoch"], cell["short_epochs"]) == (steps_per_epoch, short)


def test_a_cells_epochs_are_those_of_its_good_runs(tmp_path):
    lost = make_record(None, spec=make_spec(), status="failed", cause="It fell over.")
    good = make_record(10.0, spec=make_spec(repeat=2), steps_per_epoch=1)
    (cell,) = cells_of(tmp_path, [lost, good], unsupported=[]).values()
    assert (cell["steps_per_epoch"], cell["short_epochs"]) == (1, True)


def test_a_run_that_may_have_been_disturbed_makes_its_cell_noisy(tmp_path):
    quiet, loud = runs_of(1, [10.0, 10.1])
    loud = replace(loud, disturbances=["Processes of others were on the device."])
    cells = cells_of(tmp_path, [quiet, loud, *runs_of(2, [10.0, 10.1])], unsupported=[])
    assert (cells[W1]["noisy"], cells[W2]["noisy"]) == (True, False)
    assert cells[W1]["disturbed"] == "Processes of others were on the device."
    assert cells[W2]["disturbed"] == ""
