import csv
import json
import re
from pathlib import Path

import msgspec
import pytest
from report_rows import RATES
from report_samples import (
    DATA_REPORT_FILE,
    EVIL,
    STUDY,
    TABLES,
    make_project,
    table,
    with_study,
    write_results,
)

from feedrate.report.rows import Inputs

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


def unlinked(page):
    """A page without its links, so that a test can read the text around a number."""
    return re.sub(r"</?a\b[^>]*>", "", page)


@pytest.fixture
def broken(tmp_path):
    """A device without any valid run, and a cause that looks like a script."""
    project = make_project(("cpu", "gaudi2"))
    bad = {("cpu", workers): "failed" for workers in RATES} | {("gaudi2", 2): "out_of_memory"}
    bad |= {("gaudi2", 16): "invalid"}
    return project, write_results(tmp_path, project, bad=bad, cause=EVIL)


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_is_one_whole_page(project, inputs, kind):
    page = table(project, inputs, kind)
    assert page.startswith("<!doctype html>")
    assert f"<title>Table of {kind}</title>" in page
    assert page.count('<main class="feedrate">') == page.count("</main>") == 1
    assert "<table" in page


@pytest.mark.parametrize("kind", TABLES)
def test_texts_from_data_are_escaped(broken, kind):
    page = table(*broken, kind)
    assert "<script" not in page
    assert page.count("{{") == page.count("{{ 7 * 7 }}")


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_renders_without_any_row(tmp_path, project, kind):
    inputs = write_results(tmp_path, project)
    for file in tmp_path.rglob("*.csv"):
        file.write_text(file.read_text().splitlines()[0] + "\n")
    page = table(project, inputs, kind)
    assert "<main" in page


def test_the_published_table_shows_theirs_and_ours(project, inputs):
    page = unlinked(table(project, inputs, "published"))
    assert "<td>601.5</td>" in page
    assert "<td>847.7</td>" in page
    h100 = page.split(">H100<")[1].split("</tr>")[0]
    assert "<td>/</td>" in h100
    assert "2023-08, a library 1.7, batch 48" in page
    ours = page.split("Measured here")[1]
    assert "11.20<small>11.09 to 11.31</small>" in ours
    assert "<span>/</span>" in ours
    assert "batch 8" in ours


def test_a_device_that_was_published_and_measured_has_their_ratio(tmp_path):
    project = make_project(("gaudi2",))
    page = unlinked(table(project, write_results(tmp_path, project), "published"))
    last = page.split("Gaudi2: measured / published")[1]
    assert f"<td>{TIMES}0.02</td>" in last


def test_a_cell_that_shares_a_run_is_named_once_and_compared_all_the_same(tmp_path):
    project = make_project(("gaudi2",))
    able = msgspec.structs.replace(project.devices["gaudi2"], capabilities=["decode_device"])
    project = msgspec.structs.replace(project, devices={**project.devices, "gaudi2": able})
    inputs = write_results(tmp_path, project)
    page = unlinked(table(project, inputs, "cells"))
    assert "Same runs as 0, device: the settings that differ have no effect." in page
    assert page.count(", device</th>") == 4
    ratios = table(project, inputs, "published").split("Gaudi2: measured / published")[1]
    assert ratios.count(TIMES) == 3, "the post has 2 workers for the device's decoding"


def edited(folder, **changes):
    """The results, with these texts in columns of every row of results.csv."""
    inputs = write_results(folder, make_project(("gaudi2",)))
    path = folder / f"results/{STUDY}/results.csv"
    with path.open(newline="") as stream:
        rows = [row | changes for row in csv.DictReader(stream)]
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return inputs


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": "8"}, "batch size: 48 in the source, 8 here"),
        ({"dataset": "other"}, "data: generated in the source, other here"),
        ({"short_epochs": "true", "steps_per_epoch": "1"}, "too few steps per epoch here: 1"),
    ],
)
def test_a_run_unlike_the_published_one_has_no_ratio_but_a_reason(tmp_path, changes, told):
    page = table(make_project(("gaudi2",)), edited(tmp_path, **changes), "published")
    last = page.split("Gaudi2: measured / published")[1]
    assert told in last
    assert TIMES not in last


def test_the_sheet_of_each_number_is_beside_our_run(tmp_path, project, inputs):
    page = table(project, inputs, "comparability")
    assert page.count("compared with CPU") == 2, "numbers with the same items share a heading"
    assert "Gaudi2 (workers = 0, decode = host; workers = 1, decode = host;" in page
    rows = page.split("</tr>")
    model = next(row for row in rows if ">model<" in row)
    assert "bridgetower-large<small>a paragraph</small>" in model
    assert "<td>bridgetower-tiny</td><td>different</td><td>rate, ratio, memory, loss</td>" in model
    rows_of_data = next(row for row in rows if ">rows<" in row)
    assert "<td>not stated</td>" in rows_of_data
    own = make_project(("gaudi2",))
    page = table(own, write_results(tmp_path / "own", own), "comparability")
    assert "compared with Gaudi2" in page.split("H100")[0]
    ownrows = page.split("H100 (")[0]
    assert ownrows.count("<td>different</td>") == 1, "the software"


@pytest.mark.parametrize(("precision", "kinds"), [("fp32", "rate, ratio, loss"), ("bf16", "")])
def test_tf32_matters_where_our_run_is_fp32(precision, kinds, tmp_path):
    changed = edited(tmp_path, precision=precision)
    page = table(make_project(("gaudi2",)), changed, "comparability")
    tf32 = next(row for row in page.split("</tr>") if ">TF32<" in row)
    assert f"<td>{kinds}</td>" in tf32


@pytest.mark.parametrize("kind", ["published", "cells", "speedup", "ceilings"])
def test_cells_without_a_number_say_why(broken, kind):
    page = table(*broken, kind)
    for words in ("failed", "out of memory", "rejected by a check"):
        if not (kind == "published" and words == "rejected by a check"):
            assert words in page
    assert kind != "published" or ">/<" in page


def test_all_cells_with_their_intervals_and_what_is_not_supported(project, inputs):
    page = unlinked(table(project, inputs, "cells"))
    assert "14.10<small>13.96 to 14.24</small>" in page
    assert "4 cells</th><td" in page
    assert ">not supported</span>" in page
    assert "0, device; 1, device; 2, device; 16, device: The device lacks decode_device." in page
    assert '<tr class="use"><th scope="row">1, host</th>' in page
    assert "noisy: spread 2.0%" in page


def test_claims_of_the_source_stand_apart_from_our_own_questions(project, inputs):
    page = unlinked(table(project, inputs, "claims"))
    source, ours = page.index("Claims of the source"), page.index("Our own questions")
    assert source < page.index("against none on H100") < ours < page.index("no slower than none")
    assert "✓ holds" in page
    assert "<code>tflops_per_device of *[workers=2] / *[workers=0]</code>" in page
    assert "agrees" in page
    assert "no data here" in page
    assert f"<td>{TIMES}1.79</td>" in page
    assert f"{TIMES}1.28<small>1.25 to 1.30</small><small>CPU</small>" in page


def test_only_downloaded_data_are_said_not_to_have_changed_since(project, inputs):
    path = Path(DATA_REPORT_FILE)
    report = json.loads(path.read_text())

    def page(**changes):
        path.write_text(json.dumps(report | changes))
        return table(project, inputs, "data")

    assert "generated (generated)" not in page()
    assert "hanged since" not in page()
    assert "hanged since" in page(source="hub")
    assert "a.jpg" in page(changed_since_fetch=["a.jpg"])
    assert "generated (hub)" in page(source="hub")


def test_editions_are_in_order_with_their_ratios(project, inputs):
    page = table(project, inputs, "editions").split("<tbody>")[1]
    group = page.split("Gaudi2, 8 devices: workers = 0")[1].split('scope="rowgroup"')[0]
    assert group.index("2023-06") < group.index("2023-08")
    assert f"<td>{TIMES}1.13</td>" in group
    assert group.count("used for comparisons") == 1, "only the newer edition"


def test_the_data_report_names_what_was_left_out(project, inputs):
    page = table(project, inputs, "data")
    assert "598 with 540 images" in page
    assert "train: 480 rows, 480 images" in page
    assert "truncated" in page
    assert "1 file, 2 rows" in page


def test_the_largest_and_the_fastest_level_that_fit(tmp_path):
    project = make_project(("cpu", "gaudi2"))
    bad = {("gaudi2", 16): "out_of_memory", **{("cpu", w): "out_of_memory" for w in RATES}}
    inputs = write_results(tmp_path, project, bad=bad, cause="Not tried: less was too much.")
    page = table(project, inputs, "largest")
    ours = page[page.index("Gaudi2") :]
    cells = [cell.split("<")[0] for cell in ours.split("<td>")[1:8]]
    assert cells[0] == "2"  # the largest that fits
    assert cells[4] == "2"  # which is the fastest measured too
    assert "2<small>it is not measurably faster than 1</small>" in ours
    assert cells[6] == "16"
    assert "Not tried: less was too much." in ours
    assert "none" in page[page.index("CPU") : page.index("Gaudi2")]


def test_training_shows_efficiency_learning_and_the_time_of_an_epoch(project, inputs):
    entry = next(t for t in project.studies[STUDY].tables if t.name == "training")
    longer = msgspec.structs.replace(entry, epoch_samples=1_281_167)
    tables = [longer if t is entry else t for t in project.studies[STUDY].tables]
    page = table(with_study(project, tables=tables), inputs, "training")
    assert "Epoch of 1,281,167 samples" in page
    assert f"{1_281_167 / 14.3 / 3600:.2f} h" in page


@pytest.mark.parametrize("name", ["cells", "training"])
def test_energy_and_cost_have_columns_where_they_are_known(project, inputs, name):
    heads = ("Energy (J/sample)", "USD per million samples")
    assert not any(head in table(project, inputs, name) for head in heads)
    path = Path(f"results/{STUDY}/cells.csv")
    lines = [line.split(",") for line in path.read_text().splitlines()]
    for column, value in {"energy_j_per_sample": "12.34", "usd_per_million_samples": "7.5"}.items():
        lines[1][lines[0].index(column)] = value
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    page = table(project, inputs, name)
    assert all(head in page for head in heads)
    assert "<td>12.3</td>" in page
    assert "<td>7.50</td>" in page


def test_the_table_of_latency_has_three_percentiles_in_ms(project, inputs):
    row = unlinked(table(project, inputs, "latency")).split('<th scope="row">0, host</th>')[1]
    row = row.split("</tr>")[0]
    # Steps of 8 samples; the first run of the cell has 11.09 samples/s.
    for ms in ("722", "866", "1,010"):
        assert f"<td>{ms}</td>" in row
    assert "<td>24%</td>" in row, "the share of preparation"
    assert "3 of 3" in row


def test_a_trace_is_linked_by_its_path_and_has_a_column_only_where_there_is_one(
    project, inputs, monkeypatch
):
    cells = [msgspec.structs.replace(c, trace="") for c in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    assert "Trace" not in table(project, inputs, "cells")
    one = next(i for i, c in enumerate(cells) if c.device == "cpu")
    told = "trace.json.gz; no events of HPU"
    cells[one] = msgspec.structs.replace(cells[one], trace=told)
    page = table(project, inputs, "cells")
    path = f"runs/{STUDY}/cpu/{cells[one].cell}/rep1-0a1b2c3d/trace.json.gz"
    assert f'<a href="../../../{path.replace("=", "%3D")}">trace.json.gz</a>' in page
    assert "<small>no events of HPU</small>" in page
