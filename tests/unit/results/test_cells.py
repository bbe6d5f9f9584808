"""What a cell says of its runs: medians, intervals, its state and its limit."""

import msgspec
import pytest
from collected_rows import W0, W1, W2, cells_of, rows_of, shared
from msgspec.structs import replace
from record_builder import make_record, make_spec, make_study, runs_of

from feedrate.core import variables
from feedrate.core.errors import ExpectedError
from feedrate.core.variables import DriverCall
from feedrate.results.checks import confirm_results
from feedrate.results.files import RUNS, for_studies, write_csv


def test_a_shared_run_is_one_failure(tmp_path, monkeypatch):
    records = [*runs_of(0, [5.0, 5.1]), *runs_of(1, [10.0, 12.0])]
    rows, settings = rows_of(records, unsupported=[], shared=[shared()])
    for row in rows:
        row["status"] = "failed"
    write_csv(tmp_path / "results.csv", for_studies(RUNS, settings.project.studies), rows)
    call = DriverCall(pid=1, host="n", since="1", choices=("--profile", "gaudi"))
    monkeypatch.setenv(variables.DRIVER, msgspec.json.encode(call).decode())
    with pytest.raises(ExpectedError, match="4 of 4 runs did not end well") as failed:
        confirm_results([tmp_path / "results.csv"], tmp_path / "confirmed.txt")
    assert str(failed.value).endswith("again: python -m feedrate run --profile gaudi")


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
def test_whether_loaders_have_more_processes_than_cores(workers, decode, count, cores, more):
    record = make_record(spec=make_spec(workers, decode, count=count), cores=cores)
    (row,) = (row for row in rows_of([record])[0] if row["status"] == "ok")
    assert row["oversubscribed"] is more


def test_a_cell_has_medians_interval_spread_and_speed_up():
    cells = cells_of([*runs_of(0, [10.0, 9.0, 11.0]), *runs_of(2, [20.5, 21.0, 21.5])])
    zero, two = cells[W0], cells[W2]
    assert zero["samples_per_s"] == 10.0
    assert zero["ci_low"] < 9.0 < 11.0 < zero["ci_high"], "wider than three values"
    assert zero["ci_high"] / zero["ci_low"] == pytest.approx(two["ci_high"] / two["ci_low"])
    assert (zero["noisy"], two["noisy"]) == (True, False)
    assert (zero["speedup"], zero["speedup_ci_low"]) == (1.0, 1.0)
    assert two["speedup"] == pytest.approx(2.1)
    assert two["speedup_ci_low"] < 20.5 / 11 < 21.5 / 9 < two["speedup_ci_high"]
    assert (zero["use"], two["use"]) == (False, True)


def test_a_cell_tells_energy_and_what_a_million_samples_cost():
    records = [
        replace(run, measurement=replace(run.measurement, energy_j_per_sample=joules))
        for run, joules in zip(runs_of(0, [10.0] * 3), (2.0, 3.0, 7.0), strict=True)
    ]
    cells = cells_of(records, device={"price_usd_per_hour": 3.6})
    assert cells[W0]["energy_j_per_sample"] == 3.0
    assert cells[W0]["usd_per_million_samples"] == pytest.approx(100.0)  # 0.001 USD/s at 10/s
    free = cells_of(records, device={"price_usd_per_hour": None})
    assert free[W0]["usd_per_million_samples"] is None
    assert cells["workers=1~decode=device"]["usd_per_million_samples"] is None


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["failed", "ok"], "ok"),
        (["failed", "out_of_memory"], "out_of_memory"),
        (["invalid", "failed"], "failed"),
        (["invalid"], "invalid"),
        (["missing", "ok"], "ok"),
        (["missing", "failed"], "failed"),
        (["missing"], "missing"),
    ],
)
def test_the_state_of_a_cell(statuses, expected):
    records = [
        make_record(
            spec=make_spec(0, repeat=k),
            status=status,
            cause="" if status == "ok" else f"It is {status}.",
        )
        for k, status in enumerate(statuses, start=1)
    ]
    cell = cells_of(records)[W0]
    assert cell["status"] == expected
    assert cell["runs"] == len(statuses)
    if expected != "ok":
        assert cell["cause"] == f"It is {expected}."
        assert cell["samples_per_s"] is None
        assert (cell["gain_low"], cell["gain_high"]) == (None, None)
        assert cell["limit"] == ("memory" if expected == "out_of_memory" else "")


def test_the_limit_uses_medians_and_the_devices_memory():
    records = runs_of(1, [10.0, 10.1, 10.2], data_wait_share=0.3, model=20.0)
    cell = cells_of(records)[W1]
    assert cell["limit"] == "data loading"
    assert cell["gain_low"] < 20 / 10.1 - 1 < cell["gain_high"]
    records = runs_of(1, [10.0], data_wait_share=0.01, model=10.0, peak_memory_gib=79.0)
    cells = cells_of(records, device={"memory_gib": 80.0})
    assert cells[W1]["limit"] == "memory"


def test_within_a_factor_each_level_has_its_own_baseline():
    study = make_study(within=["workers"])
    device = make_record(30.0, spec=make_spec(2, "device"))
    rows = [*runs_of(0, [10.0]), *runs_of(2, [20.0]), device]
    cells = cells_of(rows, study=study)
    speedups = [cell["speedup"] for cell in cells.values() if cell["status"] == "ok"]
    assert speedups == [1.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("steps_per_epoch", "steps", "short"),
    [(19, 100, True), (20, 100, False), (11, 12, True), (12, 12, False), (None, 100, False)],
)
def test_epochs_of_fewer_than_twenty_steps_are_short(steps_per_epoch, steps, short):
    """A run of fewer steps needs no more than these."""
    spec = make_spec(protocol={"steps": steps, "warmup_steps": 2})
    record = make_record(10.0, spec=spec, steps_per_epoch=steps_per_epoch)
    (row,), _ = rows_of([record], unsupported=[])
    assert (row["steps_per_epoch"], row["short_epochs"]) == (steps_per_epoch, short)
    (cell,) = cells_of([record], unsupported=[]).values()
    assert (cell["steps_per_epoch"], cell["short_epochs"]) == (steps_per_epoch, short)


def test_a_run_that_may_have_been_disturbed_makes_its_cell_noisy():
    quiet, loud = runs_of(1, [10.0, 10.1])
    loud = replace(loud, disturbances=["Other processes were on the device."])
    cells = cells_of([quiet, loud, *runs_of(2, [10.0, 10.1])], unsupported=[])
    assert (cells[W1]["noisy"], cells[W2]["noisy"]) == (True, False)
    assert cells[W1]["disturbed"] == "Other processes were on the device."
    assert cells[W2]["disturbed"] == ""


@pytest.mark.parametrize(("ranks", "slow"), [((1, 1, 1), 1), ((0, 1), None)])
def test_a_cell_names_the_slow_rank_that_all_its_runs_name(ranks, slow):
    records = [
        replace(run, measurement=replace(run.measurement, slow_rank=r, slow_rank_ratio_low=1.4))
        for run, r in zip(runs_of(1, [10.0] * len(ranks)), ranks, strict=True)
    ]
    cell = cells_of(records)[W1]
    assert cell["slow_rank"] == slow
    assert (cell["limit"] == "slow rank") is (slow is not None)
