"""Our run beside the published experiment: what is the same, what matters, and what is judged."""

from pathlib import Path

import pytest
from record_builder import Sources, claim_plan, make_plan, make_spec, published, runs_of
from record_builder import make_record as record

from feedrate.config.project import SHEETS, load_project, read_sheets
from feedrate.config.study import Claim, Fact, Sheet
from feedrate.config.values import read_yaml
from feedrate.results.claims import claim_rows
from feedrate.results.collect import run_table
from feedrate.results.comparability import NEEDS, compare, in_the_way

ROOT = Path(__file__).resolve().parents[3]

SAID = {
    "devices": 8,
    "model": "bridgetower-large",
    "data": "someone/cartoons",
    "checkpoint": "someone/weights",
    "precision": "bf16",
    "parallelism": "ddp",
    "warmup_steps": 3,
    "window": "5 epochs",
}
RUN = {
    "device": "h100",
    "world_size": 8,
    "model": "bridgetower-large",
    "dataset": "hub",
    "steps_per_epoch": 25,
    "checkpoint": "someone/weights",
    "precision": "bf16",
    "parallelism": "ddp",
    "batch_size": 48,
    "gradient_accumulation": 1,
    "warmup_steps": 3,
    "steps": 130,
    "library": "transformers 5.23.0",
    "short_epochs": False,
}
"""A run that repeats the experiment of SAID; only the software and the window's length differ."""


def sources(said=None, **changes):
    facts = {
        item: Fact(says=says, where="there") for item, says in ((said or SAID) | changes).items()
    }
    sheet = Sheet(source="A post", facts={k: v for k, v in facts.items() if v.says is not None})
    return Sources(sheets={"post": sheet}, datasets={"hub": "someone/cartoons"})


def number(**changes):
    stated = {"batch_size": 48, "software": "transformers 4.30", "sheet": "post"}
    return published("h100", 602.1, workers=2, **(stated | changes))


def outcomes(run=RUN, known=None, row=None):
    found = compare(row or number(), run, make_plan(sources=known or sources()))
    return {one.item: one.outcome for one in found}


def reasons(kind, run=RUN, known=None, row=None):
    items = in_the_way(compare(row or number(), run, make_plan(sources=known or sources())), kind)
    return [item.reason for item in items]


def test_each_item_is_same_different_or_not_stated():
    found = outcomes()
    same = {k for k, v in found.items() if v == "same"}
    assert same == {*SAID, "device", "batch_size"} - {"window"}
    assert {k for k, v in found.items() if v == "different"} == {"window", "software"}
    assert {k for k, v in found.items() if v == "not stated"} == {"rows", "steps_per_epoch", "tf32"}


def test_a_number_without_a_sheet_states_only_what_its_row_does():
    found = outcomes(row=number(sheet=""))
    assert {k for k, v in found.items() if v != "not stated"} == {
        "device",
        "batch_size",
        "software",
    }


@pytest.mark.parametrize("kind", ["rate", "ratio", "memory"])
def test_the_same_experiment_with_other_software_is_judged(kind):
    assert reasons(kind) == []


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"dataset": "generated-7680"}, {"rate", "ratio", "loss"}),
        ({"model": "bridgetower-base"}, {"rate", "ratio", "memory", "loss"}),
        ({"device": "h100-pcie"}, {"rate", "ratio", "memory", "loss"}),
        ({"world_size": 4}, {"rate", "ratio", "memory", "loss"}),
        ({"parallelism": "fsdp2"}, {"rate", "ratio", "memory", "loss"}),
        ({"warmup_steps": 10}, {"rate"}),
        ({"batch_size": 40}, {"rate", "memory", "loss"}),
        ({"batch_size": 16}, {"rate", "ratio", "memory", "loss"}),
        ({"checkpoint": "none"}, {"loss"}),
        ({"library": "transformers 6"}, set()),
    ],
)
def test_what_matters_depends_on_what_is_compared(change, kinds):
    known = sources(steps_per_epoch=25)
    assert {kind for kind in NEEDS if reasons(kind, RUN | change, known)} == kinds


@pytest.mark.parametrize(
    ("unsaid", "kinds"),
    [
        ("data", {"rate", "ratio"}),
        ("devices", {"rate", "ratio", "memory"}),
        ("precision", {"rate", "ratio", "memory"}),
        ("parallelism", {"rate", "memory"}),
        ("warmup_steps", {"rate"}),
        ("checkpoint", set()),
    ],
)
def test_what_the_source_does_not_state_is_not_taken_for_the_same(unsaid, kinds):
    known = sources(**{unsaid: None})
    assert {kind for kind in ("rate", "ratio", "memory") if reasons(kind, RUN, known)} == kinds


def test_tf32_matters_in_single_precision_only():
    fp32 = RUN | {"precision": "fp32"}
    assert any(
        "TF32: on in the source, off here" in one
        for one in reasons("ratio", fp32, sources(precision="fp32", tf32=True))
    )
    assert any(
        "TF32: not stated" in one for one in reasons("rate", fp32, sources(precision="fp32"))
    )
    assert reasons("ratio", fp32, sources(precision="fp32", tf32=False)) == []
    assert reasons("ratio", RUN, sources(tf32=True)) == []
    rounded = RUN | {"precision": "tf32"}
    assert reasons("ratio", rounded, sources(precision="tf32", tf32=True)) == []
    assert reasons("ratio", rounded, sources(precision="fp32", tf32=False))


def test_a_sheet_may_allow_several_values():
    known = sources(parallelism=["ddp", "fsdp1"])
    assert reasons("rate", RUN | {"parallelism": "fsdp1"}, known) == []
    assert reasons("rate", RUN | {"parallelism": "fsdp2"}, known)


# In claims


def verdict_of(known, dataset="hub", spec=None, **said):
    records = [
        record(rate, spec=make_spec(workers, repeat=k, dataset=dataset, **(spec or {})))
        for workers, rates in ((0, (10.0, 10.05)), (2, (20.0, 20.1)))
        for k, rate in enumerate(rates, start=1)
    ]
    runs = run_table(records, make_plan())
    claim = Claim(
        id="c", text="t", expression="cpu[workers=2] / cpu", **({"published": 2.0} | said)
    )
    table = [
        published("cpu", v, workers=w, sheet="post", batch_size=4) for w, v in ((0, 1), (2, 2))
    ]
    study = claim_plan(claim, sources=known, published=table)
    (row,) = claim_rows(runs, study)
    return row


TINY = {"devices": 1, "model": "bridgetower-tiny", "data": "someone/cartoons", "precision": "fp32",
        "tf32": False}  # fmt: skip


def test_the_sources_claim_is_judged_where_all_that_matters_is_the_same():
    row = verdict_of(sources(TINY))
    assert (row["verdict"], row["measured"]) == ("holds", 2.0)


def test_the_published_experiment_on_generated_data_is_not_the_published_experiment():
    row = verdict_of(sources(TINY), dataset="generated-7680")
    assert row["verdict"] == "not comparable"
    assert "data: someone/cartoons in the source, generated-7680 here" in row["why"]
    assert row["measured"] == 2.0, "the measured ratio remains, without a verdict"


@pytest.mark.parametrize(("of", "verdict"), [("source", "not comparable"), ("advice", "holds"),
                                            ("ours", "holds")])  # fmt: skip
def test_only_claims_about_its_own_experiment_need_the_sheet(of, verdict):
    row = verdict_of(Sources(), of=of, published=None, more_than=1)
    assert row["verdict"] == verdict


def test_a_statement_about_cells_without_a_number_uses_the_studys_sheet():
    records = [*runs_of(1, [10.0, 10.05]), *runs_of(2, [20.0, 20.05])]
    runs = run_table(records, make_plan())
    faster = Claim(id="c", text="t", expression="cpu[workers=2] / cpu[workers=1]", more_than=1)
    told = sources(TINY | {"data": "generated", "device": "cpu"})
    for default, verdict in (("", "not comparable"), ("post", "holds")):
        known = Sources(sheets=told.sheets, default=default)
        study = claim_plan(faster, sources=known, published=[])
        (row,) = claim_rows(runs, study)
        assert row["verdict"] == verdict


def test_whether_a_cell_fits_needs_the_same_model_and_parallelism():
    told = {"devices": 1, "model": "bridgetower-tiny", "precision": "fp32"}
    fits = {"published": None, "fits": True}
    records = runs_of(2, [20.0])
    runs = run_table(records, make_plan())
    claim = Claim(id="c", text="t", expression="cpu[workers=2]", **fits)
    table = [published("cpu", 2, workers=2, sheet="post")]
    for strategy, verdict in ((["ddp", "fsdp1"], "holds"), ("fsdp1", "not comparable")):
        known = sources(told | {"parallelism": strategy})
        study = claim_plan(claim, sources=known, published=table)
        (row,) = claim_rows(runs, study)
        assert row["verdict"] == verdict


# The committed sheets


def test_every_headline_rate_of_a_study_has_a_sheet():
    config = read_yaml(ROOT / "config/config.yaml")
    names = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
    project = load_project(ROOT, config | {"studies": names})
    rows = [row for rows in project.published.values() for row in rows]
    assert [r.id for r in rows if r.headline and r.metric == "samples_per_s" and not r.sheet] == []
    for name, study in project.studies.items():
        about_itself = [c for c in study.claims if c.of == "source" and c.published is None]
        assert study.source.sheet or not about_itself, name


def test_a_sheet_takes_over_the_facts_of_another(tmp_path):
    (tmp_path / "config/published").mkdir(parents=True)
    (tmp_path / SHEETS).write_text(
        "a: {source: A, facts: {devices: {says: 8, where: x}, tf32: {says: true, where: x}}}\n"
        "b: {source: A, like: a, facts: {devices: {says: 64, where: y}}}\n"
    )
    found = read_sheets(tmp_path, {}, {})["b"].facts
    assert (found["devices"].says, found["tf32"].says) == (64, True)
