"""Where a statement about a loader's speed holds, and what is said where it is unknown."""

from types import SimpleNamespace

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.values import read_rows
from feedrate_loaders.tables.loader_claims import (
    LoaderClaim,
    claims,
    measured_ratios,
    outcome,
    statement,
    where_it_holds,
)


def claim(ratio=2.0, workers=32, storage="not stated", rates="loader", cores="not stated"):
    return LoaderClaim(
        id="c",
        text="Twice as fast",
        loader="other",
        over="torch",
        ratio=ratio,
        rates=rates,
        workers=workers,
        cores=cores,
        storage=storage,
        edition="2025-01",
        source="s",
    )


def run(loader, workers, repeat, rate, trained=None):
    levels = {"loader": loader, "workers": workers}
    rates = {"loader_samples_per_s": rate, "samples_per_s": trained}
    return SimpleNamespace(levels=levels, repeat=repeat, **rates)


def test_ratios_are_of_the_same_repeat_and_range_over_them():
    runs = [run("torch", 1, 1, 100), run("torch", 1, 2, 50), run("other", 1, 1, 150)]
    runs += [run("other", 1, 2, 100), run("torch", 2, 1, 100), run("other", 4, 1, 100)]
    assert measured_ratios(claim(), runs) == {1: (1.5, 2.0)}


@pytest.mark.parametrize(
    ("found", "workers", "says"),
    [
        ({1: (1.0, 1.1), 2: (1.9, 2.2)}, 32, "Cannot tell: not measured with 32 workers."),
        ({1: (1.0, 1.1), 2: (1.1, 1.2)}, 32, "Cannot tell: not measured with 32 workers."),
        ({2: (1.0, 1.1)}, 1, "Cannot tell: not measured with 1 worker."),
        ({1: (2.0, 2.0), 2: (2.5, 2.6)}, 2, "Holds with 2 workers."),
        ({1: (2.0, 2.1), 2: (1.1, 1.2)}, 2, "Does not hold with 2 workers."),
        ({1: (1.0, 3.0), 2: (2.5, 2.6)}, 1, "Cannot tell: the repeats disagree."),
        ({1: (2.0, 2.1), 2: (1.1, 1.1)}, 2, "Does not hold with 2 workers, from single runs."),
        ({1: (1.0, 1.1)}, "", "Does not hold with 1 worker. More workers were not measured."),
        ({1: (2.0, 2.0)}, "", "Holds with 1 worker, from single runs. More workers were not"),
        ({1: (2.0, 2.1), 2: (3.0, 3.1)}, "", "Holds with 1 and 2 workers. More workers were not"),
        ({1: (2.0, 2.1), 2: (1.0, 1.1)}, "", "Holds only with 1 worker, not with 2. More workers"),
        ({1: (1.0, 3.0), 2: (1.0, 1.1)}, "", "Cannot tell: the repeats disagree."),
        (
            {1: (2.0, 2.1), 2: (1.0, 3.0)},
            "",
            "Holds only with 1 worker; with 2 workers the repeats disagree. More workers",
        ),
        (
            {1: (2.0, 2.1), 2: (1.0, 3.0), 4: (1.0, 1.1)},
            "",
            "Holds only with 1 worker, not with 4; with 2 workers the repeats disagree. More",
        ),
    ],
)
def test_a_statement_is_judged_with_its_own_workers_or_with_each_that_was_measured(
    found, workers, says
):
    assert where_it_holds(claim(workers=workers or "not stated"), found, []).startswith(says)


@pytest.mark.parametrize("name", ["other", "torch"])
def test_a_ratio_that_was_not_measured_says_why(name):
    levels = {"loader": name}
    lost = SimpleNamespace(levels=levels, status="ok", cause="One of its runs was disturbed.")
    cell = SimpleNamespace(levels=levels, status="failed", cause="It is not installed.")
    said = where_it_holds(claim(), {}, [lost, cell])
    assert said == "Cannot tell: this ratio was not measured. It is not installed."


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        (0.36, 0.36, True),
        (0.86, 0.36, True),
        (0.87, 0.36, False),
        (4.5, 0.0, False),
        (None, 0, True),
    ],
)
def test_a_rate_with_other_pixels_does_not_count(one, other, counts):
    cells = [
        SimpleNamespace(levels={"loader": name}, pixel_mean_abs_diff=distance)
        for name, distance in (("other", one), ("torch", other))
    ]
    failed = SimpleNamespace(levels={"loader": "other"}, pixel_mean_abs_diff=None)
    said = outcome(claim(), SLOWER, [*cells, failed])
    assert said.startswith("Does not count") is not counts, "a failed cell hides no distance"


SLOWER = [run("torch", 1, 1, 100.0, 40.0), run("other", 1, 1, 300.0, 41.0)]


@pytest.mark.parametrize("storage", ["memory", "local disk", "not stated"])
def test_a_claim_about_local_files_is_compared(storage):
    assert outcome(claim(workers=1, storage=storage), SLOWER, []).startswith("Holds with 1 worker")


def test_a_claim_about_another_storage_is_not_decided():
    told = outcome(claim(ratio=20.0, storage="cloud storage"), SLOWER, [])
    assert told == "Cannot tell: it is about cloud storage, which is not measured here."


def test_a_claim_about_training_is_judged_by_training():
    assert measured_ratios(claim(rates="training"), SLOWER) == {1: (41 / 40, 41 / 40)}
    assert "Does not hold" in outcome(claim(ratio=1.28, workers=1, rates="training"), SLOWER, [])


def test_what_a_source_does_not_state_is_shown():
    shown = str(
        statement("cpu", claim(workers="not stated", cores=12, rates="training"), SLOWER, [])
    )
    assert "workers not stated, 12 cores, storage not stated" in shown
    assert "other / torch, in training" in shown
    assert "1 worker, cores not stated, local disk" in str(
        statement("cpu", claim(workers=1, storage="local disk"), SLOWER, [])
    )


@pytest.mark.parametrize(
    ("workers", "storage"), [("", "memory"), ("many", "memory"), (1, "AWS S3"), (1, "")]
)
def test_a_regime_is_stated_or_said_to_be_missing(tmp_path, workers, storage):
    columns = "id,text,loader,over,ratio,rates,workers,cores,storage,edition,source"
    row = f"c,Fast,other,torch,2,loader,{workers},not stated,{storage},2025-01,s"
    (tmp_path / "claims.csv").write_text(f"{columns}\n{row}\n")
    with pytest.raises(ConfigError, match=r"workers|storage"):
        read_rows(tmp_path / "claims.csv", LoaderClaim)


def test_the_project_s_claims_are_decided_by_what_they_are_about():
    rows = {row.id: row for row in claims()}
    assert {name for name, one in rows.items() if one.storage == "cloud storage"} == {
        "litdata-training",
        "litdata-webdataset",
        "webdataset-cloud",
    }
    assert {rows[name].loader for name in ("dali-blog", "dali-training")} == {"dali-gpu"}
    assert rows["webdataset-disk"].storage == "local disk"
    assert [name for name, one in rows.items() if one.rates == "training"] == ["dali-training"]
    assert rows["ffcv-96"].workers == "not stated"
    assert rows["ffcv-96"].cores == 96
