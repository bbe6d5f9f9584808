import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from record_builder import (
    BASELINE,
    FACTORS,
    as_literal,
    collect_settings,
    make_record,
    make_spec,
    published,
    published_study,
    write_records,
)

from feedrate.cli.jobs import run
from feedrate.config.project import load_project
from feedrate.config.study import Factor
from feedrate.config.values import read_yaml
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.columns import CELLS, FIT, for_studies
from feedrate.results.files import read_csv, write_csv
from feedrate.results.loader_model import Point, bound, fit, fit_rows, predict
from feedrate.results.params import FitSettings, fit_settings


@settings(max_examples=60, deadline=None)
@given(
    tc_s=st.floats(1e-4, 1.0),
    ratio=st.floats(0.05, 20.0),
    workers=st.sets(st.integers(1, 16), min_size=1, max_size=4),
)
@example(tc_s=1.0, ratio=11.75, workers={13})  # a narrow valley
@example(tc_s=1.0, ratio=14.75, workers={1, 15})  # one beside a kink
def test_rates_that_follow_the_model_are_explained_to_the_last_digit(tc_s, ratio, workers):
    points = [Point(w, predict(w, tc_s, tc_s * ratio)) for w in [0, *sorted(workers)]]
    found = fit(points)
    assert found is not None
    assert found.max_error < 1e-4


def test_the_constants_are_found_again():
    points = [Point(w, predict(w, 0.01, 0.03)) for w in (0, 1, 2, 4)]
    found = fit(points)
    assert found is not None
    assert found.tc_s == pytest.approx(0.01, rel=1e-3)
    assert found.td_s == pytest.approx(0.03, rel=1e-3)
    assert found.r2 == pytest.approx(1.0)


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(1.0, 1e3), min_size=2, max_size=5),
    scale=st.sampled_from([0.25, 4.0]),
)
def test_any_rates_give_finite_constants_that_explain_them_as_well_at_any_scale(rates, scale):
    found = fit([Point(w, rate) for w, rate in enumerate(rates)])
    scaled = fit([Point(w, rate * scale) for w, rate in enumerate(rates)])
    assert found is not None
    assert scaled is not None
    assert all(math.isfinite(x) and x > 0 for x in (found.tc_s, found.td_s))
    assert squares(scaled) == pytest.approx(squares(found), rel=1e-3, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(1.0, 1e3), min_size=2, max_size=5),
    tc_s=st.floats(1e-3, 1.0),
    td_s=st.floats(1e-3, 1.0),
)
def test_no_other_constants_explain_the_rates_better(rates, tc_s, td_s):
    found = fit([Point(w, rate) for w, rate in enumerate(rates)])
    assert found is not None
    other = sum(math.log(predict(w, tc_s, td_s) / rate) ** 2 for w, rate in enumerate(rates))
    assert squares(found) <= other * 1.01 + 1e-6


def squares(found):
    return sum(math.log1p(residual) ** 2 for residual in found.residuals)


@pytest.mark.parametrize(
    "points",
    [[], [Point(0, 1.0)], [Point(1, 1.0), Point(2, 1.0)], [Point(0, 1.0), Point(1, 0.0)]],
)
def test_without_both_kinds_of_cells_there_is_no_fit(points):
    assert fit(points) is None


def test_bounds_by_workers():
    assert [bound(w, 0.01, 0.03) for w in (0, 1, 3, 4)] == [
        "serial",
        "loader",
        "compute",
        "compute",
    ]


def of_post(rows, device):
    return [r for r in rows if r["device"] == device and r["origin"] == "published 2023-08"]


@pytest.fixture(scope="module")
def post():
    return fit_rows([], FitSettings(studies={"loading": published_study()}))


@pytest.mark.parametrize(
    ("device", "tc_ms", "td_ms", "error"),
    [("gaudi2", 10.6, 2.75, 0.015), ("h100", 13.5, 10.2, 0.019), ("a100", 23.4, 11.8, 0.009)],
)
def test_the_published_table_is_explained_within_two_percent(post, device, tc_ms, td_ms, error):
    rows = of_post(post, device)
    assert [r["loader_workers"] for r in rows] == [0, 1, 2]
    assert rows[0]["tc_s"] * 1e3 == pytest.approx(tc_ms, rel=0.01)
    assert rows[0]["td_s"] * 1e3 == pytest.approx(td_ms, rel=0.01)
    assert rows[0]["max_error"] < error
    assert rows[0]["r2"] > 0.98


@pytest.mark.parametrize("device", ["gaudi2", "h100", "a100"])
def test_nothing_is_said_of_a_device_that_is_faster_than_its_fits_limit(post, device):
    rows = of_post(post, device)
    assert rows[0]["world_size"] / rows[0]["tc_s"] < rows[-1]["samples_per_s"]
    assert {(r["reading"], r["bound"]) for r in rows} == {("", "")}


FOLLOWING = {"a": (1 / 8, 1 / 6), "b": (1 / 8, 1 / 2)}
"""Tc and Td of two devices whose rates follow the model exactly."""


def following(**others):
    rates = {d: [8 * predict(w, *constants) for w in range(3)] for d, constants in others.items()}
    return [published(d, rate, workers=w) for d, of in rates.items() for w, rate in enumerate(of)]


def test_fits_that_stand_are_put_in_words_with_the_labels_of_their_devices():
    study = published_study(published=following(**FOLLOWING))
    rows = fit_rows([], FitSettings(studies={"x": study}, labels={"a": "Ay", "b": "Bee"}))
    assert "With 2 or more workers per rank, Ay looks compute-bound" in rows[0]["reading"]
    assert "Two constants explain the 3 rates within 0.0%" in rows[0]["reading"]
    assert rows[-1]["reading"].startswith("Loading limits Bee at every worker count tried")


def test_only_a_faster_row_that_computes_the_same_refutes_the_limit():
    faster = {"workers": 2, "decode": "device"}
    rows = following(a=FOLLOWING["a"])
    assert all(r["reading"] for r in fitted(rows))
    assert not any(
        r["reading"] for r in fitted([*rows, published("a", 70, workers=2, levels=faster)])
    )
    kind = Factor(sets="train.precision", levels=["fp32", "bf16"])
    other = published("a", 70, workers=2, levels={"workers": 2, "kind": "bf16"})
    changes = {"factors": FACTORS | {"kind": kind}, "baseline": BASELINE | {"kind": "fp32"}}
    assert all(r["reading"] for r in fitted([*rows, other], **changes))


def fitted(rows, **changes):
    study = published_study(published=rows, **changes)
    return fit_rows([], FitSettings(studies={"x": study}))


def test_predictions_are_of_the_whole_job(post):
    for row in post:
        assert row["predicted"] / row["samples_per_s"] - 1 == pytest.approx(row["residual"])
        assert row["world_size"] == 8
        assert row["tc_measured_s"] is None


def test_series_of_one_device_are_told_apart_and_so_are_their_constants():
    rates = {"host": (100.0, 150.0, 150.0), "cache": (200.0, 210.0, 210.0)}
    rows = [
        published("h100", rate, workers=w, levels={"workers": w, "decode": decode})
        for decode, of_decode in rates.items()
        for w, rate in enumerate(of_decode)
    ]
    found = fit_rows([], FitSettings(studies={"x": published_study(published=rows)}))
    assert {(r["series"], r["decode"]) for r in found} == {
        ("decode = host", "host"),
        ("decode = cache", "cache"),
    }
    assert len({(r["series"], r["tc_s"]) for r in found}) == 2
    assert "h100 (decode = cache) looks compute-bound" in found[-1]["reading"]
    assert found[0]["reading"] == "", "the cache feeds the same model faster than its limit"


def test_large_rates_are_no_powers_of_ten():
    rates = [1 / (1 / 44.8 + 2.23e-6), 44.8, 44.8]
    rows = [published("h100", rate, workers=w) for w, rate in enumerate(rates)]
    (first, *_) = fit_rows([], FitSettings(studies={"x": published_study(published=rows)}))
    assert "e+" not in first["reading"]
    assert ",000" in first["reading"] or "," in first["reading"].split(" samples/s")[0]


def test_the_only_series_of_a_device_needs_no_name(post):
    assert {r["series"] for r in post} == {""}


def test_the_model_alone_is_the_median_of_its_cells(tmp_path):
    records = [
        make_record(rate, spec=make_spec(w), model=model)
        for w, (rate, model) in enumerate(((10.0, 20.0), (15.0, 25.0)))
    ]
    settings = collect_settings()
    cells = cell_rows(run_table(write_records(tmp_path, records), settings), settings)
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert rows[0]["tc_measured_s"] == pytest.approx((1 / 20 + 1 / 25) / 2)


def test_other_editions_and_cells_alone_are_not_fitted(post):
    assert {r["origin"] for r in post} == {"published 2023-08"}
    assert not [r for r in post if r["decode"] == "device"]


def cells_of(tmp_path, rates, *, loader=(50.0, 60.0, 100.0), model=20.0):
    records = [
        make_record(rate, spec=make_spec(w), loader=loader[w], model=model)
        for w, rate in enumerate(rates)
    ]
    settings = collect_settings()
    return cell_rows(run_table(write_records(tmp_path, records), settings), settings), settings


def test_our_cells_are_fitted_and_held_against_their_ceilings(tmp_path):
    cells, _ = cells_of(tmp_path, [14.0, 20.0, 20.4])
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert [r["origin"] for r in rows] == ["here"] * 3
    assert rows[0]["tc_measured_s"] == pytest.approx(1 / 20)
    assert rows[0]["td_measured_s"] == pytest.approx(1 / 50)
    assert rows[0]["predicted_from_ceilings"] == pytest.approx(1 / (1 / 20 + 1 / 50))
    assert rows[1]["predicted_from_ceilings"] == 20.0
    assert rows[1]["ceiling_residual"] == pytest.approx(0.0)


@pytest.mark.parametrize("alone", [50.0, 500.0])
def test_nothing_is_concluded_where_the_loader_alone_contradicts_the_fit(tmp_path, alone):
    """Of a fast loader the rates show little: here the fit says 46 samples/s."""
    cells, _ = cells_of(tmp_path, [14.0, 20.0, 20.4], loader=(alone, 600.0, 900.0))
    for cell in cells:
        cell["verdict"] = "compute-bound" if cell["loader_workers"] else "input-bound"
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert 1 / rows[0]["td_s"] == pytest.approx(46, rel=0.02)
    assert all(row["reading"] for row in rows) == (alone == 50.0)


def test_a_fit_names_its_settings_although_the_others_have_too_few_rates():
    rows = following(a=FOLLOWING["a"])
    rows.append(published("a", 20, workers=2, levels={"workers": 2, "decode": "cache"}))
    found = fitted(rows)
    assert {row["series"] for row in found} == {"decode = host"}
    assert "a (decode = host) looks compute-bound" in found[0]["reading"]


def test_a_loader_that_binds_bounds_the_prediction_from_ceilings(tmp_path):
    cells, _ = cells_of(tmp_path, [1 / 0.24, 5.0, 10.0], loader=(5.0, 6.0, 12.0))
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert [r["bound"] for r in rows] == ["serial", "loader", "loader"]
    assert [r["predicted_from_ceilings"] for r in rows[1:]] == [6.0, 12.0]
    assert rows[0]["reading"].startswith("Loading limits cpu at every worker count tried")
    for verdict in ("compute-bound", "communication-bound"):
        cells[-1]["verdict"] = verdict
        rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
        assert {row["reading"] for row in rows} == {""}, "the verdict denies it"


def test_what_is_below_the_rate_is_no_ceiling_to_predict_from(tmp_path):
    cells, _ = cells_of(tmp_path, [14.0, 20.0, 22.0], loader=(12.0, 60.0, 15.0))
    measured = [cell for cell in cells if cell["status"] == "ok"]
    assert [cell["below_rate"] for cell in measured] == ["loader", "", "loader;model"]
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert [r["predicted_from_ceilings"] for r in rows] == [None, 20.0, None]
    assert {r["td_measured_s"] for r in rows} == {None}
    few, _ = cells_of(tmp_path, [24.0, 25.0, 26.0])
    rows = fit_rows(few, FitSettings(studies={"loading": published_study(published=[])}))
    assert {r["tc_measured_s"] for r in rows} == {None}


@pytest.mark.parametrize("rates", [[20.0, 15.0, 8.0], [10.0, 15.0]])
def test_nothing_is_said_of_a_poor_fit_and_of_one_that_is_exact_by_construction(tmp_path, rates):
    cells, _ = cells_of(tmp_path, rates)
    rows = fit_rows(cells, FitSettings(studies={"loading": published_study(published=[])}))
    assert {r["reading"] for r in rows} == {""}
    assert all(r["predicted"] for r in rows)


def test_a_measured_rate_within_its_interval_of_the_limit_refutes_nothing(tmp_path):
    records = [
        make_record(rate, spec=make_spec(w, repeat=k), loader=45.0)
        for w, rates in enumerate(((14.0, 14.1), (20.0, 20.2), (20.1, 20.5)))
        for k, rate in enumerate(rates, start=1)
    ]
    settings = collect_settings()
    cells = cell_rows(run_table(write_records(tmp_path, records), settings), settings)
    fits = FitSettings(studies={"loading": published_study(published=[])})
    for cell in cells:
        cell["verdict"] = "compute-bound" if cell["loader_workers"] else "input-bound"
    (first, *_) = fit_rows(cells, fits)
    assert 1 / first["tc_s"] < cells[-1]["samples_per_s"]
    assert "looks compute-bound" in first["reading"]
    cells[1]["verdict"] = "undecided"
    assert {row["reading"] for row in fit_rows(cells, fits)} == {""}, "the verdict denies it"


def test_single_runs_refute_a_fit_only_beyond_the_noise_assumed_of_them(tmp_path):
    cells, _ = cells_of(tmp_path, [14.0, 20.0, 21.0])
    for cell in cells:
        cell["verdict"] = "compute-bound" if cell["loader_workers"] else "input-bound"
    study = published_study(published=[])
    (first, *_) = fit_rows(cells, FitSettings(studies={"loading": study}))
    assert 1 / first["tc_s"] < 21.0
    assert first["reading"].endswith(", from single runs.")
    strict = msgspec.structs.replace(study, noise_share=0.01)
    (first, *_) = fit_rows(cells, FitSettings(studies={"loading": strict}))
    assert first["reading"] == ""


def test_cells_without_data_are_left_out(tmp_path):
    records = [
        make_record(10.0, spec=make_spec(0)),
        make_record(99.0, spec=make_spec(1), status="failed", cause="It broke."),
    ]
    settings = collect_settings()
    cells = cell_rows(run_table(write_records(tmp_path, records), settings), settings)
    study = published_study(published=[])
    assert fit_rows(cells, FitSettings(studies={"loading": study})) == []


def test_the_command_reads_cells_and_writes_the_fit(tmp_path):
    cells, settings = cells_of(tmp_path, [14.0, 20.0, 20.4])
    write_csv(tmp_path / "cells.csv", for_studies(CELLS, settings.studies), cells)
    arguments = [
        "--cells", str(tmp_path / "cells.csv"),
        "--settings", as_literal(FitSettings(studies={"loading": published_study()})),
        "--out", str(tmp_path / "fit.csv"),
    ]  # fmt: skip
    assert run("fit-loader-model", arguments) == 0
    rows = read_csv(tmp_path / "fit.csv", FIT)
    assert len(rows) == 9 + 3
    assert {r["workers"] for r in rows} == {0, 1, 2}
    assert all(r["residual"] is not None for r in rows)


BUNDLES = Factor(
    bundles={"host": {}, "device": {"loader.decode": "device"}}, levels=["host", "device"]
)


@pytest.mark.parametrize(
    ("factors", "decoding", "fitted"),
    [
        (FACTORS, [], {"host"}),
        (FACTORS, ["cpu"], {"host"}),
        (FACTORS | {"decode": BUNDLES}, [], {"host"}),
        (FACTORS | {"decode": BUNDLES}, ["cpu"], set()),
        (FACTORS | {"decode": BUNDLES}, ["gaudi2"], {"host"}),
    ],
)
def test_cells_that_decode_on_the_device_are_not_fitted(tmp_path, factors, decoding, fitted):
    """Their cells of no worker and of one are the same."""
    records = [
        make_record(10.0 + w, spec=make_spec(w, decode))
        for decode in ("host", "device")
        for w in (0, 1)
    ]
    settings = collect_settings()
    cells = cell_rows(run_table(write_records(tmp_path, records), settings), settings)
    study = published_study(published=[], factors=factors, decoding=decoding)
    rows = fit_rows(cells, FitSettings(studies={"loading": study}))
    assert {row["decode"] for row in rows} == fitted


def test_published_rates_of_a_decoder_on_the_device_are_not_fitted():
    rates = [
        published("gaudi2", 800.0 + w, workers=w, levels={"workers": w, "decode": "device"})
        for w in (0, 1)
    ]
    assert fit_rows([], FitSettings(studies={"loading": published_study(published=rates)})) == []


def test_devices_that_decode_by_their_studys_own_settings_are_known():
    """Whatever a study adapts for them."""
    root = Path(__file__).resolve().parents[3]
    project = load_project(root, read_yaml(root / "config/config.yaml"))
    study = project.studies["bridgetower-dataloading"]
    own = {"settings": {"loader": {"decode": "device"}}}
    adapted = msgspec.structs.replace(study, adapt=study.adapt | {"hpu": own})
    changed = msgspec.structs.replace(project, studies={"x": adapted}, published={"x": []})
    found = fit_settings(changed).studies["x"].decoding
    assert found == [name for name, entry in project.devices.items() if entry.kind == "hpu"]


def test_wrong_settings_are_one_sentence(tmp_path, capsys):
    assert (
        run(
            "fit-loader-model",
            ["--cells", "x.csv", "--settings", "{'studies': 1}", "--out", "y.csv"],
        )
        == 1
    )
    assert "--settings: studies" in capsys.readouterr().err
