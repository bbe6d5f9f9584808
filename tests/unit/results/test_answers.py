"""The setting to use, and its bounds: clear answers, equal settings, noise and single runs."""

import math

import pytest
from collected_rows import W0, W1, W2, rows_of, shared
from msgspec.structs import replace
from record_builder import make_record, make_spec, make_study, runs_of

from feedrate.config.study import Factor, Thresholds
from feedrate.results.answers import answer_rows, groups_of
from feedrate.results.collect import cell_rows
from feedrate.results.statistics import critical, variance

DEVICE = "workers=1~decode=device"


def summary(records, **changes):
    """The cells that are to be used, and the rows of answers.csv."""
    runs, plan = rows_of(records, **changes)
    groups = groups_of(runs, plan.study)
    cells = cell_rows(runs, plan, groups)
    answers = answer_rows(cells, groups.values())
    used = [cell["cell"] for cell in cells if cell["use"]]
    assert [answer["cell"] for answer in answers] == used
    return used, answers


def answer_of(records, **changes):
    _, (answer,) = summary(records, **changes)
    return answer


def test_a_clear_gain_has_bounds_on_both_sides():
    records = [
        *runs_of(0, [10.0, 10.01, 10.02]),
        *runs_of(1, [19.99, 20.0, 20.01]),
        *runs_of(2, [20.1, 20.11, 20.12]),
    ]
    answer = answer_of(records)
    assert (answer["cell"], answer["baseline"], answer["compared"]) == (W1, W0, 3)
    assert answer["workers"] == 1
    assert 0.97 < answer["gain_at_least"] < 20 / 10.01 - 1
    assert 20.11 / 20 - 1 < answer["other_gain_at_most"] < 0.03
    assert answer["nearest"] == W2
    assert answer["nearest_low"] < 20.11 / 20 < answer["nearest_high"]
    assert answer["other_gain_at_most"] == answer["nearest_high"] - 1
    assert (answer["samples_per_s"], answer["single"]) == (20.0, False)
    assert answer["ci_low"] < 20 < answer["ci_high"]


def test_one_slow_repeat_of_three_does_not_move_the_answer():
    records = [*runs_of(0, [60.0, 61.0, 62.0]), *runs_of(1, [100.0, 101.0, 61.5])]
    answer = answer_of(records)
    assert answer["cell"] == W1
    assert answer["gain_at_least"] > 0


def test_a_difference_that_does_not_matter_costs_no_worker():
    answer = answer_of([*runs_of(0, [100.00, 100.01]), *runs_of(2, [100.02, 100.03])])
    assert (answer["cell"], answer["gain_at_least"]) == (W0, 0.0)
    assert 0 < answer["other_gain_at_most"] < 0.03


def test_the_smallest_effect_is_the_studys():
    records = [*runs_of(1, [100.0, 100.2, 100.4]), *runs_of(2, [102.0, 102.2, 102.4])]
    assert summary(records)[0] == [W1]
    strict = make_study(thresholds=Thresholds(smallest_effect=0.01))
    assert summary(records, study=strict)[0] == [W2]


def test_the_best_of_equal_noisy_cells_owes_a_part_of_its_lead_to_chance():
    """Ten per cent ahead, which is what noise adds to the best of two."""
    records = [*runs_of(0, [80.0, 100.0, 125.0]), *runs_of(1, [90.0, 110.0, 135.0])]
    answer = answer_of(records)
    assert answer["cell"] == W0
    assert answer["other_gain_at_most"] > 0.3, "which is said"
    quiet = [*runs_of(0, [99.0, 100.0, 101.0]), *runs_of(1, [109.0, 110.0, 111.0])]
    assert answer_of(quiet)["cell"] == W1


def test_so_many_more_repeats_halve_the_uncertainty():
    records = [*runs_of(1, [96.0, 99.0, 102.0]), *runs_of(2, [97.0, 101.0, 104.0])]
    answer = answer_of(records)
    more = answer["more_repeats"]

    def width(runs, dof):
        return critical(0.95, dof, 1) * math.sqrt(variance(runs))

    assert width(3 + more, 4 + 2 * more) <= width(3, 4) / 2 < width(2 + more, 2 + 2 * more)


def test_single_runs_have_the_noise_that_the_study_assumes():
    records = [*runs_of(0, [95.0]), *runs_of(1, [100.0])]
    answer = answer_of(records)
    assert (answer["cell"], answer["single"], answer["gain_at_least"]) == (W1, True, 0.0)
    assert answer["nearest_low"] < 0.95 < answer["nearest_high"]
    assert answer["ci_low"] < 100 < answer["ci_high"]
    strict = make_study(thresholds=Thresholds(noise_share=0.01))
    assert answer_of(records, study=strict)["gain_at_least"] > 0.03


def test_single_runs_whose_steps_vary_are_hardly_known():
    def gain(noise):
        steps = {"model": None, "block_noise": noise}
        records = [*runs_of(0, [70.0], **steps), *runs_of(1, [100.0], **steps)]
        return answer_of(records)["gain_at_least"]

    assert gain(0.01) > 0.2
    assert gain(0.2) == 0


def test_a_cell_of_one_run_uses_the_noise_of_the_others():
    answer = answer_of([*runs_of(0, [60.0, 61.0, 62.0]), *runs_of(1, [100.0])])
    assert (answer["cell"], answer["single"]) == (W1, False)
    assert answer["gain_at_least"] > 0.4


def test_cells_that_compute_the_same_are_compared_with_the_model_alone_in_the_same_rounds():
    """The machine is 30% slower in some runs; training and the model alone are so alike."""
    states = [1.0, 0.7, 1.1]

    def records(model):
        return [
            make_record(
                rate * state,
                spec=make_spec(workers, repeat=repeat),
                model=model and (model + 0.1 * repeat) * state,
            )
            for workers, rate in ((0, 80.0), (1, 100.0))
            for repeat, state in enumerate(states, start=1)
        ]

    by_model, by_window = answer_of(records(110.0)), answer_of(records(None))
    assert (by_model["measure"], by_window["measure"]) == ("live/model", "window")
    assert by_model["gain_at_least"] > 0.2
    assert by_window["gain_at_least"] == 0
    assert by_model["samples_per_s"] == by_window["samples_per_s"] == 100.0
    partly = [*records(110.0)[:-1], records(None)[-1]]
    assert answer_of(partly)["measure"] == "window"


def test_cells_that_do_not_compute_the_same_are_compared_by_their_rates():
    decode = Factor(sets="train.precision", levels=["host", "device"])
    study = make_study(factors=make_study().factors | {"decode": decode})
    records = [*runs_of(0, [10.0, 10.1]), make_record(20.0, spec=make_spec(0, "device"))]
    assert answer_of(records, study=study, unsupported=[])["measure"] == "window"


def test_the_time_that_epochs_take_to_start_counts():
    """No epoch starts in the blocks, so it is missing in their rates."""
    records = [
        *runs_of(0, [100.0, 100.1, 100.2], model=110.0),
        *runs_of(1, [108.0, 108.1, 108.2], model=110.0, epoch_start_share=0.2),
    ]
    answer = answer_of(records)
    assert (answer["measure"], answer["cell"]) == ("live/model", W0)
    assert 108.1 * 0.8 / 100.1 < answer["nearest_high"] < 0.9


@pytest.mark.parametrize("what", ["model.name", "model.size", "model.image_px", "model.losses"])
def test_cells_that_train_something_else_than_the_baseline_do_not_compete(what):
    records = [
        *runs_of(0, [10.0]),
        *runs_of(1, [49.0]),
        make_record(10.0, spec=make_spec(0, "device")),
        make_record(90.0, spec=make_spec(1, "device")),
    ]

    def used(setting, **changes):
        bundles = {"host": {}, "device": {setting: "another"}}
        decode = Factor(bundles=bundles, levels=["host", "device"])
        factors = {"workers": Factor(sets="loader.workers", levels=[0, 1]), "decode": decode}
        study = make_study(factors=factors, **changes)
        return summary(records, study=study, unsupported=[])[0]

    assert used("loader.decode") == [DEVICE]
    assert used(what) == [W1]
    assert used(what, within=["decode"]) == [W1, DEVICE]


def test_each_level_of_what_is_given_has_an_answer():
    records = [*runs_of(0, [10.0]), *runs_of(1, [20.0])]
    records.append(make_record(99.0, spec=make_spec(1, "device")))
    used, (two, only) = summary(records, study=make_study(within=["decode"]), unsupported=[])
    assert used == [W1, DEVICE]
    assert (two["compared"], only["compared"]) == (2, 1)
    assert (only["baseline"], only["gain_at_least"]) == ("workers=0~decode=device", None)
    assert (only["nearest"], only["other_gain_at_most"]) == (None, 0.0)


def test_failed_cells_are_never_used():
    bad = make_record(500.0, spec=make_spec(1), status="invalid", cause="Wrong.")
    answer = answer_of([*runs_of(0, [10.0]), bad])
    assert (answer["cell"], answer["compared"], answer["gain_at_least"]) == (W0, 1, 0.0)
    assert summary([bad]) == ([], [])


def test_of_equal_ways_the_smallest_change_is_used():
    ways = [("host", 0, [10.0, 10.01]), ("host", 2, [20.0, 20.03]), ("device", 0, [20.1, 20.14])]
    records = [
        make_record(rate, spec=make_spec(workers, decode, repeat=repeat))
        for decode, workers, rates in ways
        for repeat, rate in enumerate(rates, start=1)
    ]
    assert summary(records, unsupported=[])[0] == [W2], "workers alone are no change"


def test_cells_that_share_runs_are_one_choice():
    records = [*runs_of(0, [5.0, 5.1]), *runs_of(1, [10.0, 12.0])]
    runs, plan = rows_of(records, unsupported=[], shared=[shared()])
    (group,) = groups_of(runs, plan.study).values()
    assert group.alike == [W0, W1]
    assert group.ratio(W2, W1) == (1.0, 1.0, 1.0)
    assert group.ratio(W2, W0) == group.ratio(W1, W0)
    cells = {cell["cell"]: cell for cell in cell_rows(runs, plan)}
    assert [name for name, cell in cells.items() if cell["use"]] == [W1]
    assert cells[W2]["speedup"] == cells[W1]["speedup"] > 2


def test_an_answer_repeats_the_limit_of_its_cell():
    records = [*runs_of(0, [10.0, 10.1], model=10.2), *runs_of(1, [10.0, 10.1], model=10.2)]
    runs, plan = rows_of(records)
    (cell, *_), (answer,) = cell_rows(runs, plan), summary(records)[1]
    assert answer["limit"] == cell["limit"] == "computing"
    assert answer["limit_gain_high"] == cell["gain_high"] > 0


def test_a_disturbed_run_counts():
    """It may be slower; that it was disturbed is said elsewhere."""
    quiet, loud = runs_of(0, [10.0]), runs_of(1, [20.0])
    loud = [replace(one, disturbances=["Clocks were lowered."]) for one in loud]
    assert summary([*quiet, *loud])[0] == [W1]
