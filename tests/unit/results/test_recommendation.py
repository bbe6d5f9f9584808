"""The setting to use: clear answers, equal settings, and what the runs do not decide."""

import random

import pytest
from msgspec.structs import replace
from record_builder import make_plan, make_record, make_spec, make_study, runs_of

from feedrate.config.study import Factor, Thresholds
from feedrate.results.collect import cell_rows, run_table

W0, W1, W2 = (f"workers={w}~decode=host" for w in range(3))


def cells_of(records, **changes):
    settings = make_plan(**changes)
    return {c["cell"]: c for c in cell_rows(run_table(records, settings), settings)}


def chosen(cells):
    return [name for name, cell in cells.items() if cell["recommended"]]


def left_open(cells):
    return [name for name, cell in cells.items() if cell["open"]]


def test_one_slow_repeat_of_three_does_not_move_the_answer():
    records = [*runs_of(0, [60.0, 61.0, 62.0]), *runs_of(1, [100.0, 101.0, 61.5])]
    cells = cells_of(records)
    assert chosen(cells) == [W1]
    assert left_open(cells) == []
    assert cells[W1]["speedup_ci_low"] > 1


def test_a_difference_that_does_not_matter_costs_no_worker():
    records = [*runs_of(0, [100.00, 100.01]), *runs_of(2, [100.02, 100.03])]
    cells = cells_of(records)
    assert chosen(cells) == [W0]
    assert (
        "less than 3% below the best, 2 workers (100 samples/s) (the best of 2 that may be equal; "
        "if they are, its rate is about 0.0% too high); " in cells[W0]["recommendation"]
    )


def test_where_the_runs_do_not_decide_there_is_no_answer_but_what_would_decide():
    records = [*runs_of(1, [96.0, 99.0, 102.0]), *runs_of(2, [97.0, 101.0, 104.0])]
    cells = cells_of(records)
    assert chosen(cells) == []
    assert left_open(cells) == [W1, W2]
    more = cells[W1]["repeats_to_decide"]
    assert more > 3
    assert more == cells[W2]["repeats_to_decide"]
    for part in (
        "1 worker (99 samples/s)",
        "2 workers (101 samples/s)",
        f"about {3 + more} repeats",
    ):
        assert part in cells[W1]["open"]
    assert cells[W1]["open"] == cells[W2]["open"]


def test_as_many_repeats_as_forecast_decide_in_most_cases():
    noise = random.Random(4)

    def rates(median, n):
        return [median * (1 + noise.gauss(0, 0.02)) for _ in range(n)]

    first = [*runs_of(1, [98.0, 100.0, 102.0]), *runs_of(2, [100.0, 102.0, 104.0])]
    more = cells_of(first)[W1]["repeats_to_decide"]
    assert more > 1
    decided = sum(
        bool(chosen(cells_of(runs_of(1, rates(100, n)) + runs_of(2, rates(102, n)))))
        for n in [3 + more] * 8
    )
    assert decided >= 5


def test_the_smallest_effect_is_the_studys():
    records = [*runs_of(1, [100.0, 100.2, 100.4]), *runs_of(2, [102.0, 102.2, 102.4])]
    assert chosen(cells_of(records)) == [W1]
    strict = make_study(thresholds=Thresholds(smallest_effect=0.01))
    assert chosen(cells_of(records, study=strict)) == [W2]


def test_a_choice_that_no_sensible_number_of_repeats_decides_says_so():
    records = [*runs_of(1, [50.0, 100.0, 200.0]), *runs_of(2, [50.0, 102.0, 204.0])]
    told = cells_of(records)[W1]["open"]
    assert told.endswith("; at least 100 runs of each are needed.")


def test_single_runs_that_noise_could_swap_are_undecided():
    records = [*runs_of(0, [95.0]), *runs_of(1, [100.0])]
    cells = cells_of(records)
    assert chosen(cells) == []
    assert (left_open(cells), cells[W0]["repeats_to_decide"]) == ([W0, W1], 1)
    strict = make_study(thresholds=Thresholds(noise_share=0.01))
    assert chosen(cells_of(records, study=strict)) == [W1]


@pytest.mark.parametrize("what", ["model.name", "model.size", "model.image_px", "model.losses"])
def test_cells_that_train_something_else_than_the_baseline_do_not_compete(what):
    other = "workers=1~decode=device"
    records = [
        *runs_of(0, [10.0]),
        *runs_of(1, [49.0]),
        make_record(10.0, spec=make_spec(0, "device")),
        make_record(50.0, spec=make_spec(1, "device")),
    ]

    def cells(setting, **changes):
        bundles = {"host": {}, "device": {setting: "another"}}
        decode = Factor(bundles=bundles, levels=["host", "device"])
        factors = {"workers": Factor(sets="loader.workers", levels=[0, 1]), "decode": decode}
        study = make_study(factors=factors, **changes)
        return cells_of(records, study=study, unsupported=[])

    assert left_open(cells("loader.decode")) == [W1, other]
    found = cells(what)
    assert (chosen(found), left_open(found)) == ([W1], [])
    assert chosen(cells(what, within=["decode"])) == [W1, other]


def test_single_runs_whose_steps_vary_are_undecided_however_far_apart():
    rough = {"block_noise": 0.2}
    records = [*runs_of(0, [70.0], **rough), *runs_of(1, [100.0], **rough)]
    assert left_open(cells_of(records)) == [W0, W1]
    assert chosen(cells_of([*runs_of(0, [70.0]), *runs_of(1, [100.0])])) == [W1]


def test_the_steps_of_a_disturbed_run_tell_nothing_of_other_runs():

    def cells(rate, seen=("Other processes were on the device.",)):
        rough = make_record(rate, spec=make_spec(2), block_noise=0.2)
        rough = replace(rough, disturbances=[*seen])
        return cells_of([*runs_of(0, [70.0]), *runs_of(1, [100.0]), rough])

    assert chosen(cells(20.0)) == [W1]
    assert left_open(cells(70.0)) == [W1, W2], "of itself they tell"
    assert left_open(cells(20.0, seen=())) == [W0, W1]


def test_where_every_run_was_disturbed_the_studys_noise_is_assumed():
    records = [*runs_of(0, [70.0]), *runs_of(1, [100.0])]
    loud = [replace(one, disturbances=["Clocks were lowered."]) for one in records]
    assert chosen(cells_of(loud)) == [W1]


def test_a_setting_that_was_compared_with_no_other_is_not_recommended():
    """One panel has two settings, the other one only a single setting."""
    records = [*runs_of(0, [10.0]), *runs_of(1, [20.0])]
    records.append(make_record(99.0, spec=make_spec(1, "device")))
    study = make_study(within=["decode"])
    cells = cells_of(records, study=study, unsupported=[])
    assert chosen(cells) == [W1]


def test_a_cell_of_one_run_uses_the_noise_of_the_others():
    records = [*runs_of(0, [60.0, 61.0, 62.0]), *runs_of(1, [100.0])]
    cells = cells_of(records)
    assert chosen(cells) == [W1]
    assert cells[W1]["ci_low"] is not None


def test_the_fewest_workers_that_nothing_clearly_beats_are_recommended():
    records = [
        *runs_of(0, [10.0, 10.01, 10.02]),
        *runs_of(1, [19.99, 20.0, 20.01]),
        *runs_of(2, [20.1, 20.11, 20.12]),
    ]
    cells = cells_of(records)
    assert chosen(cells) == [W1]
    text = cells[W1]["recommendation"]
    assert "1 worker per rank: 20 samples/s, less than 3% below the best, 2 workers" in text
    assert "2 CPU cores" in text
    assert cells[W0]["recommendation"] == ""


def test_a_better_setting_beyond_noise_is_recommended():
    records = [*runs_of(1, [19.0, 19.2, 19.5]), *runs_of(2, [21.8, 22.0, 22.4])]
    cells = cells_of(records)
    assert chosen(cells) == [W2]
    assert "the best of 2 settings; " in cells[W2]["recommendation"]
    assert "fewer than its 3 workers and ranks" in cells[W2]["recommendation"]


def test_processes_are_held_against_the_cores_of_their_own_host():
    def sixteen(workers, rates):
        spec = make_spec(workers, count=16, nodes=2, launcher="srun")
        return [make_record(rate, spec=spec, cores=24) for rate in rates]

    records = [*sixteen(0, [19.0, 20.0, 20.5]), *sixteen(2, [41.0, 42.0, 43.0])]
    told = cells_of(records)[W2]
    assert told["nodes"] == 2
    assert told["recommendation"].endswith("; on each host the job has 24 CPU cores.")
    crowded = [make_record(99.0, spec=records[-1].spec, cores=23) for _ in range(3)]
    told = cells_of([*records[:3], *crowded])[W2]
    assert "23 CPU cores, fewer than its 24 workers and ranks" in told["recommendation"]


def test_failed_cells_are_never_recommended():
    records = [
        *runs_of(0, [10.0]),
        make_record(500.0, spec=make_spec(1), status="invalid", cause="Wrong."),
    ]
    cells = cells_of(records)
    assert [c for c, row in cells.items() if row["recommended"]] == [W0]
    assert "the only setting with data, " in cells[W0]["recommendation"]
    sizes = Factor(sets="model.image_px", levels=["host", "device"])
    study = make_study(factors=make_study().factors | {"decode": sizes})
    records.append(make_record(900.0, spec=make_spec(0, "device")))
    cells = cells_of(records, study=study, unsupported=[])
    assert [c for c, row in cells.items() if row["recommended"]] == [W0]
    assert "the only setting with data that trains the same, " in cells[W0]["recommendation"]


def test_of_several_ways_with_workers_one_is_recommended():
    ways = [
        ("host", 0, [10.0, 10.01]),
        ("host", 2, [20.0, 20.03]),
        ("device", 0, [20.1, 20.14]),
    ]
    records = [
        make_record(rate, spec=make_spec(workers, decode, repeat=repeat))
        for decode, workers, rates in ways
        for repeat, rate in enumerate(rates, start=1)
    ]
    cells = cells_of(records, unsupported=[])
    # Both are as fast; the one whose workers alone differ is the smaller change.
    assert [c for c, row in cells.items() if row["recommended"]] == [W2]
    assert cells[W2]["recommendation"].startswith(
        "Use decode = host, 2 workers per rank: 20.02 samples/s, less than 3% below the best, "
        "decode = device, no worker (20.12 samples/s); "
    )


def test_where_there_is_one_setting_there_is_no_choice():
    cells = cells_of(runs_of(0, [10.0, 10.1]))
    assert [row["status"] for row in cells.values()] == ["ok", "unsupported"]
    assert not any(row["recommended"] for row in cells.values())
    assert cells[W0]["recommendation"] == ""


def test_a_number_of_workers_that_does_not_vary_is_not_what_is_chosen():
    study = make_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=[0]),
            "decode": Factor(sets="loader.decode", levels=["host", "device"]),
        }
    )
    records = [*runs_of(0, [10.0]), make_record(20.0, spec=make_spec(0, "device"))]
    cells = cells_of(records, study=study, unsupported=[])
    (chosen,) = [row for row in cells.values() if row["recommended"]]
    assert chosen["recommendation"] == (
        "Use decode = device: 20 samples/s, the best of 2 settings, assuming that single runs "
        "differ by up to 10%."
    )


def test_without_workers_the_smallest_change_is_recommended():
    study = make_study(
        factors={
            "workers": Factor(sets="train.batch_size", levels=[0, 1, 2]),
            "decode": Factor(sets="loader.decode", levels=["host"]),
        }
    )
    rows = runs_of(0, [9.99, 9.98]) + runs_of(1, [10.0, 10.01]) + runs_of(2, [7.0, 7.01])
    cells = cells_of(rows, study=study)
    assert [name for name, cell in cells.items() if cell["recommended"]] == [W0]
    assert cells[W0]["recommendation"] == (
        "Use workers = 0: 9.985 samples/s, less than 3% below the best, "
        "workers = 1 (10 samples/s) (the best of 2 that may be equal; if they are, its rate is "
        "about 0.0% too high)."
    )


def test_a_beaten_setting_is_no_rival():
    """What the best beats is out, although it may be as fast as another setting."""
    records = [
        *runs_of(0, [22.4, 25.0, 28.0]),
        *runs_of(1, [27.0, 30.0, 33.0]),
        *runs_of(2, [33.0, 37.0, 41.0]),
    ]
    assert left_open(cells_of(records)) == [W1, W2]
