"""The search for the largest batch, under planted memory limits; and claims about it."""

import json
from pathlib import Path

import pytest
from record_builder import claim_study, collect_settings, make_record, make_spec, write_records

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.study import Claim
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.results import next_runs
from feedrate.results.claims import claim_rows
from feedrate.results.collect import run_table
from feedrate.results.columns import CELLS, with_factors
from feedrate.results.files import rows_of, write_csv
from feedrate.results.next_runs import next_cells, next_level, predicted, search
from feedrate.results.params import ClaimSettings

ROOT = Path(__file__).resolve().parents[3]
STUDY, LINE = "flava-batch-search", ("350M", "ddp")
MOST = 128 * 20
"""The largest listed batch, times the steps of a full epoch."""


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "results" / STUDY).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(next_runs, "predicted", lambda *_: None)
    return tmp_path


def load(root, study=STUDY):
    chosen = {"studies": [study], "devices": ["h100"]}
    return load_project(root, read_yaml(ROOT / "config/config.yaml") | chosen)


def line_of(project):
    """The specs of the line that is searched."""
    specs = make_plan(project).runs.values()
    return [s for s in specs if (s.levels["size"], s.levels["strategy"]) == LINE]


def measured(project, limit, **statuses):
    """Rows of cells.csv: the line has `limit` as its memory; the others are too large at once."""
    rows = []
    for spec in make_plan(project).runs.values():
        mine = (spec.levels["size"], spec.levels["strategy"]) == LINE
        status = "ok" if mine and spec.levels["batch"] <= limit else "out_of_memory"
        status = statuses.get(f"batch_{spec.levels['batch']}", status) if mine else status
        key = {"study": STUDY, "device": "h100", "cell": spec.cell, "status": status}
        rows.append(key | spec.levels)
    columns = with_factors(CELLS, {n: f.levels for n, f in project.studies[STUDY].factors.items()})
    write_csv(Path(paths.CELLS_CSV.format(study=STUDY)), columns, rows)
    return rows


@pytest.mark.parametrize(
    ("limit", "found"),
    [(8, 8), (9, 9), (22, 22), (77, 76), (127, 124), (128, 128), (300, 296), (7, None)],
)
def test_the_gap_between_what_fits_and_what_does_not_is_closed(root, limit, found):
    before = {spec.cell: spec for spec in make_plan(load(root)).runs.values()}
    passes = 0
    measured(load(root), limit)
    while search(load(root)):
        passes += 1
        measured(load(root), limit)
    tried = sorted(spec.levels["batch"] for spec in line_of(load(root)))
    fits = max((level for level in tried if level <= limit), default=None)
    assert fits == found
    if fits is not None:
        larger = min(level for level in tried if level > limit)
        assert larger - fits <= max(1, 0.05 * fits)
    after = {spec.cell: spec for spec in make_plan(load(root)).runs.values()}
    assert {cell: after[cell] for cell in before} == before, "no listed cell changes, nor its data"
    assert len(after) - len(before) == passes <= 7, "only this line has new cells, one a pass"


def test_without_a_limit_the_search_ends_where_the_data_do(root):
    measured(load(root), 10**9)
    while search(load(root)):
        measured(load(root), 10**9)
    largest = max(spec.levels["batch"] for spec in line_of(load(root)))
    assert largest <= MOST < 2 * largest


@pytest.mark.parametrize("status", ["failed", "invalid", "unsupported"])
def test_a_line_waits_for_a_cell_without_a_result(root, status):
    project = load(root)
    rows = measured(project, 100)
    assert [level for level, _ in next_cells(project, STUDY, rows)] == ["112"]
    rows = measured(project, 100, batch_64=status)
    assert list(next_cells(project, STUDY, rows)) == []


def test_studies_without_a_search_have_none(root):
    assert search(load(root, "flava-scaling")) == 0
    assert not Path(paths.SEARCHED).exists()


@pytest.mark.parametrize("text", ["[]", '{"flava-batch-search": 3}', "{"])
def test_a_damaged_file_is_told(root, text):
    Path(paths.SEARCHED).write_text(text)
    with pytest.raises(ConfigError, match=r"results/searched.json"):
        load(root)


def test_a_level_that_the_study_lists_by_now_belongs_to_all_lines(root):
    cells = [f"h100/size=350M~strategy=ddp~batch={batch}" for batch in (64, 70)]
    added = {STUDY: {"64": cells[:1], "70": cells[1:]}}
    Path(paths.SEARCHED).write_text(json.dumps(added))
    project = load(root)
    assert project.searched == {STUDY: {"70": cells[1:]}}
    batches = [spec.levels["batch"] for spec in make_plan(project).runs.values()]
    assert batches.count(70) == 1 < batches.count(64)


def test_only_a_factor_of_whole_numbers_can_be_searched(tmp_path):
    (tmp_path / "config/studies").mkdir(parents=True)
    for path in (ROOT / "config").iterdir():
        if path.name != "studies":
            (tmp_path / "config" / path.name).symlink_to(path)
    text = (ROOT / f"config/studies/{STUDY}.yaml").read_text()
    study = tmp_path / f"config/studies/{STUDY}.yaml"
    study.write_text(text.replace("search: batch", "search: size"))
    with pytest.raises(ConfigError, match=r"search: 'size' is not allowed; its levels must be"):
        load(tmp_path)
    study.write_text(text.replace("search: batch", "search: strategy"))
    with pytest.raises(ConfigError, match=r"search"):
        load(tmp_path)


def verdict(tmp_path, statuses, *, metric="batch_size"):
    """The row of a claim about the largest level, where levels ended like this."""
    records = []
    for workers, status in statuses.items():
        spec = make_spec(workers, train={"batch_size": 4 + 4 * workers})
        rate = 10.0 + workers if status == "ok" else None
        records.append(make_record(rate, spec=spec, status=status))
    claim = Claim(
        id="c",
        of="ours",
        text="As said.",
        expression="cpu[workers=largest] / cpu[workers=0]",
        published=2.0,
        metric=metric,
    )
    runs = rows_of(run_table(write_records(tmp_path, records), collect_settings()))
    (row,) = claim_rows(runs, ClaimSettings(studies={"loading": claim_study(claim)}))
    return row


def test_a_claim_names_the_largest_level_that_fits(tmp_path):
    row = verdict(tmp_path, {0: "ok", 1: "ok", 2: "out_of_memory"})
    assert (row["measured"], row["ci_low"], row["ci_high"]) == (2.0, 2.0, 2.0)
    assert row["verdict"] == "holds"
    assert "cpu/workers=1~decode=host" in row["cells"]


@pytest.mark.parametrize(
    "statuses",
    [{0: "ok", 1: "ok", 2: "ok"}, {0: "ok", 1: "ok", 2: "failed"}, {0: "out_of_memory"}],
)
def test_no_level_is_the_largest_before_a_larger_one_ran_out_of_memory(tmp_path, statuses):
    assert verdict(tmp_path, statuses)["verdict"] == "no data here"


@pytest.mark.parametrize(
    ("known", "expected", "following"),
    [
        ({8: "ok", 16: "ok"}, 100, 100),
        ({8: "ok", 16: "ok"}, 20, 20),
        ({8: "ok", 16: "ok"}, None, 32),
        ({8: "ok", 16: "ok"}, 5000, 32),
        ({8: "ok", 100: "ok"}, 100, 200),
        ({8: "ok", 16: "ok", 100: "out_of_memory"}, 90, 58),
        ({8: "ok", 200: "ok"}, 900, None),
    ],
)
def test_a_search_starts_at_the_predicted_batch(known, expected, following):
    assert next_level(known, 320, lambda: expected) == following


def test_the_prediction_is_that_of_the_cell_and_its_device(root):
    project = load(root)
    cells = {
        s.levels["strategy"]: s.cell
        for s in make_plan(project).runs.values()
        if s.levels["size"] == "350M"
    }
    plain, saved = (predicted(project, STUDY, "h100", cells[name]) for name in ("ddp", "ddp-ac"))
    assert 128 < plain < saved
