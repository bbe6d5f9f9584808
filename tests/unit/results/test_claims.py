import pytest
from record_builder import claim_plan, make_plan, make_record, make_spec, runs_of

from feedrate.config.plan import Shared
from feedrate.config.study import Claim, Exclude, Thresholds
from feedrate.config.values import cell_name
from feedrate.jobs.events import NOT_TRIED
from feedrate.results.claims import agrees, claim_rows, judge, recompute
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.expression import parse
from feedrate.results.statistics import Estimate


def claim(expression, **changes):
    """A claim that is judged on any device; test_comparability.py has those of an experiment."""
    values = {
        "id": "c", "of": "advice", "text": "As said.", "expression": expression, "published": 2.0,
    }  # fmt: skip
    return Claim(**(values | changes))


def rows_of(records, *claims, **changes):
    runs = run_table(records, make_plan())
    study = claim_plan(*claims, **changes)
    return claim_rows(runs, study)


@pytest.mark.parametrize(
    ("recomputed", "printed", "same"),
    [
        (1.1028, 1.1, True),
        (1.16, 1.1, False),
        (1.275, 1.28, True),
        (1.274, 1.28, False),
        (2.454, 2.5, True),
        (2.44, 2.5, False),
        (2.0, 2.0, True),
    ],
)
def test_agreement_is_as_far_as_printed(recomputed, printed, same):
    assert agrees(claim("cpu / cpu", published=printed), recomputed, Thresholds()) is same


def test_about_ten_is_no_other_number_than_10_9():
    about_ten = claim("cpu / cpu", published=10, tolerance=0.1)
    assert agrees(about_ten, 10.9, Thresholds())
    assert not agrees(about_ten, 11.1, Thresholds())
    assert judge(about_ten, Estimate(10.9, 10.8, 10.95), Thresholds()) == "holds"
    assert (
        judge(about_ten, Estimate(11.5, 11.2, 11.8), Thresholds(claim_tolerance=0.2)) == "refuted"
    )


def test_an_edition_is_taken_where_a_claim_names_it():
    study = claim_plan()
    assert recompute(parse("a100[workers=1] / a100"), study, "2023-06") == 254.7 / 188.6
    assert recompute(parse("a100[workers=1] / a100"), study, "") == 339.7 / 227.5
    assert recompute(parse("a100[workers=2] / a100"), study, "2023-06") is None


def test_a_number_that_names_no_level_is_of_no_cell():
    from record_builder import published

    study = claim_plan(published=[published("h100", 9.0, workers=0, levels={})])
    assert recompute(parse("h100 / h100"), study, "") is None


def test_a_claim_that_holds_here():
    records = [*runs_of(0, [10.0, 10.05, 9.95]), *runs_of(2, [20.0, 20.1, 20.05])]
    (row,) = rows_of(records, claim("cpu[workers=2] / cpu"))
    assert row["verdict"] == "holds"
    assert row["measured"] == pytest.approx(2.005)
    assert 1.9 < row["ci_low"] < 2.005 < row["ci_high"] < 2.1
    assert (row["study"], row["claim"], row["device"]) == ("loading", "c", "cpu")
    assert (row["source"], row["edition"], row["statement"]) == ("A post", "2023-08", "As said.")
    assert row["measure"] == "live/model"
    assert (row["of"], row["cells"]) == (
        "advice",
        "cpu/workers=2~decode=host;cpu/workers=0~decode=host",
    )
    assert row["recomputed_from_published"] is None
    assert row.get("published_verdict") is None


def test_a_claim_about_a_cell_that_shares_a_run_is_checked():
    levels = {"workers": 2, "decode": "host"}
    two = Shared(study="loading", device="cpu", cell=cell_name(levels), levels=levels,
                 measured_as="workers=1~decode=host")  # fmt: skip
    records = [*runs_of(0, [10.0, 10.0]), *runs_of(1, [20.0, 20.0])]
    runs = run_table(records, make_plan(shared=[two]))
    study = claim_plan(claim("cpu[workers=2] / cpu"))
    (row,) = claim_rows(runs, study)
    assert (row["verdict"], row["measured"]) == ("holds", 2.0)
    itself = claim("cpu[workers=2] / cpu[workers=1]", published=None, no_less_than=1)
    (row,) = claim_rows(runs, claim_plan(itself))
    assert row["verdict"] == "not comparable", "the ratio of runs to themselves is 1"
    assert "same runs" in row["why"]


@pytest.mark.parametrize(
    ("said", "value", "low", "high", "verdict"),
    [
        # A printed ratio, with 5% around it: all of the interval inside, none of it, or part.
        ({"published": 2.0}, 2.0, 1.95, 2.05, "holds"),
        ({"published": 2.0}, 2.0, 1.85, 2.15, "cannot tell"),
        ({"published": 2.0}, 2.5, 2.3, 2.7, "refuted"),
        ({"published": 2.0}, 1.7, 1.6, 1.8, "refuted"),
        # "faster", "takes more": above one, beyond the interval.
        ({"more_than": 1}, 1.04, 1.01, 1.07, "holds"),
        ({"more_than": 1}, 1.0, 1.0, 1.0, "refuted"),
        ({"more_than": 1}, 0.95, 0.94, 0.96, "refuted"),
        ({"more_than": 1}, 0.999, 0.58, 1.75, "cannot tell"),
        ({"more_than": 0.5}, 0.6, 0.55, 0.65, "holds"),
        # "no slower": not below one by 3% or more.
        ({"no_less_than": 1}, 1.04, 0.92, 1.08, "cannot tell"),
        ({"no_less_than": 1}, 0.99, 0.975, 1.01, "holds"),
        ({"no_less_than": 1}, 0.97, 0.97, 0.97, "refuted"),
        ({"no_less_than": 1}, 0.95, 0.94, 0.96, "refuted"),
        # Without an interval.
        ({"published": 2.0}, 2.0, None, None, "cannot tell"),
        ({"more_than": 1}, 9.0, None, None, "cannot tell"),
    ],
)
def test_four_outcomes_follow_from_the_interval(said, value, low, high, verdict):
    made = claim("cpu / cpu", **({"published": None} | said))
    assert judge(made, Estimate(value, low, high), Thresholds()) == verdict


def test_a_ratio_to_the_baseline_is_that_of_its_cell():
    """Also its interval, which holds together with those of the other cells."""
    records = [*runs_of(0, [10.0, 10.2]), *runs_of(1, [11.0, 10.4]), *runs_of(2, [20.0, 20.4])]
    made = claim("cpu[workers=1] / cpu", published=None, more_than=1)
    (row,) = rows_of(records, made)
    plan = make_plan()
    cells = cell_rows(run_table(records, plan), plan)
    cell = next(cell for cell in cells if cell["workers"] == 1)
    names = ("speedup", "speedup_ci_low", "speedup_ci_high")
    assert [row["measured"], row["ci_low"], row["ci_high"]] == [cell[name] for name in names]
    assert row["verdict"] == "cannot tell"


def test_noise_of_the_other_cells_of_a_device_counts(tmp_path):
    """One pair of runs that agree by chance proves nothing where other pairs are far apart."""
    alike = [*runs_of(0, [10.0, 10.0]), *runs_of(2, [10.4, 10.4])]
    faster = claim("cpu[workers=2] / cpu", published=None, more_than=1)
    (alone,) = rows_of(alike, faster)
    (among,) = rows_of([*alike, *runs_of(1, [8.0, 12.0])], faster)
    assert (alone["verdict"], among["verdict"]) == ("holds", "cannot tell")


def test_without_runs_there_is_no_data():
    (row,) = rows_of([], claim("gaudi2[workers=2] / h100[workers=2]", published=1.28))
    assert row["verdict"] == "no data here"
    assert row["device"] == "gaudi2;h100"
    assert row["why"] == "gaudi2[workers=2] was not measured. h100[workers=2] was not measured."
    assert row["published_verdict"] == "consistent"


@pytest.mark.parametrize(
    ("able", "said"),
    [
        ([], "was left out: A few workers keep two cores busy."),
        (["large_models"], "was not measured."),
    ],
)
@pytest.mark.parametrize("fits", [None, True])
def test_a_cell_that_the_study_leaves_out_has_the_studys_reason(able, said, fits):
    why = "A few workers keep two cores busy."
    parts = [Exclude(levels={"workers": 2}, unless_able="large_models", why=why)]
    expression = "cpu[workers=2]" if fits else "cpu[workers=2] / cpu"
    made = claim(expression, fits=fits, published=None if fits else 2.0)
    (row,) = rows_of(runs_of(0, [10.0]), made, exclude=parts, device={"capabilities": able})
    assert (row["verdict"], row["why"]) == ("no data here", f"cpu[workers=2] {said}")


@pytest.mark.parametrize("status", ["failed", "invalid", "out_of_memory"])
def test_runs_that_do_not_count_are_no_data(status):
    records = [*runs_of(0, [10.0]), *runs_of(2, [20.0], status=status, cause="It broke.")]
    (row,) = rows_of(records, claim("cpu[workers=2] / cpu"))
    assert row["verdict"] == "no data here"
    assert row["why"] == f"cpu[workers=2]: {status}: It broke."
    assert row["measured"] is None


def test_repeats_on_one_device_give_no_interval_to_single_runs_on_another(tmp_path):
    repeated = [*runs_of(0, [10.0, 10.01, 9.99]), *runs_of(2, [20.0, 20.01, 19.99])]
    other = [
        make_record(rate, spec=make_spec(0, device="gaudi2", repeat=k))
        for k, rate in enumerate((30.0, 30.01), start=1)
    ]
    faster = claim("gaudi2 / cpu", published=None, more_than=2.9)
    (single,) = rows_of([*repeated, other[0]], faster)
    (both,) = rows_of([*repeated, *other], faster)
    assert (single["verdict"], single["ci_low"]) == ("cannot tell", None)
    assert both["verdict"] == "holds"


def test_a_metric_that_valid_runs_lack_is_the_reason():
    """It said `cpu[workers=2]: ok: no cause given`."""
    records = [*runs_of(0, [10.0]), *runs_of(2, [20.0])]
    more = claim("cpu[workers=2] / cpu", published=None, more_than=1, metric="forward_memory_gib")
    (row,) = rows_of(records, more)
    assert row["verdict"] == "no data here"
    assert "cpu[workers=2]: its runs have no forward_memory_gib." in row["why"]


def test_a_cell_that_is_not_supported_is_no_data():
    (row,) = rows_of(runs_of(0, [10.0]), claim("cpu[workers=1,decode=device] / cpu[workers=0]"))
    assert row["verdict"] == "no data here"
    assert "unsupported: Not tried: it needs decode device." in row["why"]


def test_the_star_gives_a_row_for_each_measured_device():
    records = [*runs_of(0, [10.0, 10.1]), *runs_of(1, [12.0, 12.1])]
    star = claim("*[workers=1] / *", published=None, more_than=1)
    rows = rows_of(records, star, measured=["cpu", "h100"])
    assert [(r["device"], r["verdict"]) for r in rows] == [
        ("cpu", "holds"),
        ("h100", "no data here"),
    ]
    assert rows[1]["recomputed_from_published"] == pytest.approx(580.1 / 336.5)
    assert rows[1]["published_verdict"] == "consistent"
    assert rows[0]["expression"] == "cpu[workers=1] / cpu[]"


@pytest.mark.parametrize(
    ("statuses", "fits", "verdict", "why"),
    [
        (["ok"], True, "holds", "It trained."),
        (["ok"], False, "refuted", "It trained."),
        (["out_of_memory"], False, "holds", "It ran out of memory."),
        (["out_of_memory"], True, "refuted", "It ran out of memory."),
        (["out_of_memory", "ok"], True, "holds", "It trained."),
        (["failed"], True, "no data here", "cpu[workers=2]: failed: It broke."),
        ([], True, "no data here", "cpu[workers=2] was not measured."),
    ],
)
def test_whether_a_cell_fits(statuses, fits, verdict, why):
    records = [
        make_record(
            10.0 if status == "ok" else None,
            spec=make_spec(2, repeat=number),
            status=status,
            cause="" if status == "ok" else "It broke.",
        )
        for number, status in enumerate(statuses, start=1)
    ]
    (row,) = rows_of(records, claim("cpu[workers=2]", published=None, fits=fits))
    assert (row["verdict"], row["why"]) == (verdict, why)
    assert (row["expression"], row["metric"]) == ("cpu[workers=2]", "")
    assert row["cells"] == "cpu/workers=2~decode=host"
    assert row.get("measured") is None


def test_a_cell_that_was_never_tried_did_not_run_out_of_memory():
    cause = f"{NOT_TRIED}workers=1~decode=host ran out of memory"
    record = make_record(None, spec=make_spec(2), status="out_of_memory", cause=cause)
    (row,) = rows_of([record], claim("cpu[workers=2]", published=None, fits=False))
    assert row["why"] == cause, "what the smaller cell shows"
    assert row["verdict"] == "holds"


@pytest.mark.parametrize("metric", ["peak_memory_gib", "host_peak_memory_gib"])
def test_a_claim_may_be_of_memory(metric):
    records = [
        *runs_of(0, [10.0, 10.1], **{metric: 4.0}),
        *runs_of(2, [20.0, 20.1], **{metric: 1.0}),
    ]
    saves = claim("cpu / cpu[workers=2]", published=4.0, metric=metric)
    (row,) = rows_of(records, saves)
    assert (row["measured"], row["verdict"]) == (4.0, "holds")
    assert row["recomputed_from_published"] is None  # the source prints rates alone


def test_within_a_factor_each_measured_level_is_held_to_itself():
    records = [*runs_of(1, [10.0, 10.1]), *runs_of(2, [20.0, 20.1])]
    faster = claim("cpu[decode=host] / cpu", published=None, no_less_than=1)
    rows = rows_of(records, faster, within=["workers"])
    assert [row["expression"] for row in rows] == [
        "cpu[decode=host,workers=1] / cpu[workers=1]",
        "cpu[decode=host,workers=2] / cpu[workers=2]",
    ]
    (named,) = rows_of(records, claim("cpu[workers=2] / cpu[workers=1]"), within=["workers"])
    assert named["measured"] == pytest.approx(20.05 / 10.05)


@pytest.mark.parametrize("metric", ["samples_per_s", "loss_last"])
@pytest.mark.parametrize("of", ["ours", "advice"])
def test_rates_over_short_epochs_are_not_comparable(metric, of):
    records = [
        make_record(rate, spec=make_spec(workers, repeat=k), steps_per_epoch=1, loss_last=rate)
        for workers, rate in ((0, 10.0), (1, 20.0))
        for k in (1, 2)
    ]
    made = claim("cpu[workers=1] / cpu[workers=0]", metric=metric, of=of)
    (row,) = rows_of(records, made)
    short = metric == "samples_per_s"
    assert row["verdict"] == ("not comparable" if short else "holds")
    assert ("too few steps per epoch here: 1" in row["why"]) is short
    assert row["measured"] == 2.0
