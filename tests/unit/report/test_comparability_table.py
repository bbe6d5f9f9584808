"""The table of the sheets: beside which run a number is, and what an item rules out."""

import pytest
from msgspec.structs import replace
from report_samples import STUDY, make_project, published, table, write_results

from feedrate.report.rows import Inputs


def page_of(project, inputs, monkeypatch, change):
    """The table, with the changes that `change` gives for each run."""
    runs = [replace(run, **change(run)) for run in inputs.runs(STUDY)]
    monkeypatch.setattr(Inputs, "runs", lambda *_: runs)
    return table(project, inputs, "comparability")


def row_of(page, item):
    return next(row for row in page.split("</tr>") if f">{item}</a>" in row)


@pytest.mark.parametrize(
    ("workers", "decode", "beside"),
    [(2, "host", 2), (2, "device", 2), (16, "device", 16), (4, "device", 0), (4, "host", 0)],
)
def test_a_number_is_beside_the_run_most_like_it(
    workers, decode, beside, project, inputs, monkeypatch
):
    """A cell that did not run here has the most levels in common; without any, the baseline."""
    numbers = {STUDY: [published("h100", workers, 500.0, decode=decode)]}
    page = page_of(
        replace(project, published=numbers),
        inputs,
        monkeypatch,
        lambda run: {"batch_size": 100 + run.levels["workers"]},
    )
    assert f"<td>{100 + beside}</td>" in row_of(page, "batch size")
    assert f"compared with CPU (workers = {beside}, decode = host)" in page


@pytest.mark.parametrize(
    ("batch", "kinds"),
    [
        (48, ""),
        (40, "rate, memory, loss"),
        (24, "rate, memory, loss"),
        (8, "rate, ratio, memory, loss"),
    ],
)
def test_what_an_item_rules_out_agrees_with_the_reasons(batch, kinds, tmp_path, monkeypatch):
    """A ratio allows a batch up to twice or half as large."""
    project = make_project(("gaudi2",))
    inputs = write_results(tmp_path, project)
    page = page_of(project, inputs, monkeypatch, lambda _: {"batch_size": batch})
    assert row_of(page, "batch size").endswith(f"<td>{kinds}</td>")
    assert row_of(page, "model").endswith("<td></td>"), "the same, so nothing is ruled out"
    assert row_of(page, "checkpoint").endswith("<td>loss</td>"), "the source does not state it"
