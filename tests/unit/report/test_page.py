"""The page: the first screen of a study, its folded parts, its links to records, and its stages."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_samples import EVIL, MODEL_ALONE, RATES, STUDY, make_project, plan_of, write_results

from feedrate.config.study import Exclude
from feedrate.report import audit, html, page, provenance, remarks, sentences
from feedrate.report.rows import CellOf
from feedrate.report.table import Field, Line, Shown
from feedrate.results.study_plan import write_plan


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes the results and the page of a project in the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(project=None, *, drawn=False, **results):
        project = project or make_project()
        study = write_results(tmp_path, project, **results)
        plan = write_plan(plan_of(project))
        page.tabulate_results(plan, Path("results") / STUDY)
        if drawn:
            page.plot_figures(plan, Path("results") / STUDY)
        page.write_report([plan], Path("results"), Path("report.html"))
        return study, Path("report.html").read_text()

    return make


def words(markup):
    plain = re.sub(r"<figure>.*?</figure>|<[^>]*>", "", markup, flags=re.DOTALL)
    return re.sub(r"\s+", " ", plain)


def first_screen(markup):
    return markup.partition("<main>")[2].partition("<details")[0]


def test_the_first_screen_has_machine_answer_table_figure_and_claim(made):
    study, whole = made(drawn=True)
    first = words(first_screen(whole))
    (answer,) = sentences.answers(study)
    assert answer.text in first
    for fact in ("A processor of 2 cores", "bridgetower-tiny", "batch 8", "2026-11-21", "12 runs"):
        assert fact in first
    for rate in RATES.values():
        assert f"{rate:g}"[:4] in first
    assert "decode device" in first  # not possible here
    assert "1.79" in first  # the claim that the study names
    assert first_screen(whole).count("<table") == 1
    assert first_screen(whole).count("<img") == 1
    assert len(first.split()) < 250


def test_the_answer_names_the_setting_and_bounds_that_the_rows_have(made):
    study, _ = made()
    (answer,) = sentences.answers(study)
    row = study.answer("cpu")
    assert row.cell == "workers=1~decode=host"  # 1.4% below the fastest
    assert "1 loader worker" in answer.text
    gain_percent = int(100 * row.gain_at_least)
    assert f"{gain_percent}%" in answer.text
    assert {cell.cell for cell in answer.cells} == {row.cell, row.baseline}


def test_the_page_refers_to_no_other_file(made):
    _, whole = made()
    names = re.findall(r'(?:src|href)="([^"#]*)', whole)
    assert [n for n in names if n and not n.startswith(("data:", "https://example.org"))] == []
    assert not re.search(r"@import|url\(", whole)


def test_bad_news_is_on_the_first_screen_with_its_causes(made):
    project = make_project(("cpu", "gaudi2"))
    bad = {("cpu", workers): "failed" for workers in RATES} | {("gaudi2", 2): "out_of_memory"}
    study, whole = made(project, bad=bad, cause="The card is on fire.")
    listed = words(re.search(r'<ul class="bad">.*?</ul>', whole, re.DOTALL)[0])
    assert listed.count("The card is on fire.") == 2  # once for each device and status
    assert "out of memory" in listed
    no_answer, other = sentences.answers(study)
    assert study.answer("cpu") is None
    assert no_answer.device == "CPU"
    assert "Use" in other.text


@pytest.mark.parametrize(
    ("before", "after", "learns"), [(0.18, 0.6, True), (0.0, 0.19, False), (0.18, 0.25, False)]
)
def test_a_model_learns_if_it_gains_and_beats_chance(made, before, after, learns):
    def edit(record):
        (score,) = [one for one in record.scores if (one.on, one.chance) == ("test", 0.2)]
        gains = {"gain_low": after - before - 0.1, "gain_high": after - before + 0.1}
        return replace(record, scores=[replace(score, before=before, after=after, **gains)])

    study, _ = made(make_project(asks="learning", levels=(0,)), edit=edit)
    (answer,) = sentences.answers(study)
    assert ("learns" in answer.text) == learns
    assert {run.repeat for run in answer.cells} == {1, 2, 3}


def test_out_of_memory_on_a_ladder_is_no_bad_news(made):
    study, whole = made(make_project(ladder=["workers"]), bad={("cpu", 16): "out_of_memory"})
    assert sentences.failures(study) == []
    assert 'class="bad"' not in whole


def test_runs_that_nobody_started_did_not_fail(made):
    study, _ = made(bad={("cpu", workers): "missing" for workers in RATES})
    (answer,) = sentences.answers(study)
    assert "failed" not in answer.text
    assert "Nothing ran" in answer.text


def test_a_cell_that_has_not_run_is_no_failure_of_a_ladder_and_no_slower_setting(made):
    project = make_project(asks="largest", ladder=["workers"])
    study, _ = made(project, bad={("cpu", 16): "missing"})
    (answer,) = sentences.answers(study)
    assert "have not run yet" in answer.text
    assert "failed" not in answer.text


def test_the_claim_of_the_first_screen_is_that_of_the_baselines_level_of_within(made):
    study, _ = made(make_project(within=["decode"]))
    row, rows = study.claims[0], []
    for decode, measured in (("device", 9.0), ("host", 1.2)):
        cells = f"cpu/workers=2~decode={decode};cpu/workers=0~decode={decode}"
        facts = {"cells": cells, "measured": measured, "verdict": "holds"}
        rows.append(replace(row, claim=study.study.claim, **facts))
    study.claims = rows
    assert "1.20" in audit.published(study)[0].text


def test_the_largest_that_fits_is_in_the_table(made):
    """Not that of other levels of `within`, which the table does not show."""

    def edit(record):
        full = record.levels["decode"] == "host" and record.levels["workers"] == 16
        return replace(record, status="out_of_memory", measurement=None) if full else record

    project = make_project(("gaudi2",), asks="largest", ladder=["workers"], within=["decode"])
    study, _ = made(project, edit=edit)
    (answer,) = sentences.answers(study)
    assert answer.text.startswith("At decode host: ")
    assert "workers that fits is 2" in answer.text
    assert "16, runs out of memory" in answer.text
    others = [statement.text for statement in remarks.reasons(study)]
    assert any("decode device" in one for one in others)


def test_disturbed_runs_give_provisional_rates_and_no_answer(made):
    bad = {("cpu", workers): "invalid" for workers in RATES}
    study, whole = made(bad=bad, cause="Other programs used 50% of the cores.")
    (answer,) = sentences.answers(study)
    assert "provisional" in answer.text
    assert "14.3" in words(first_screen(whole))
    assert study.answer("cpu") is None


class Balance(HTMLParser):
    """Checks that every element that opens is closed, in order."""

    VOID = ("meta", "img", "input", "br", "link")

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_texts_of_strangers_are_escaped(made):
    bad = {("cpu", 16): "failed"}
    _, whole = made(make_project(question=EVIL, title=EVIL), bad=bad, cause=EVIL)
    assert "<script>alert" not in whole
    assert "49" not in first_screen(whole).partition("<h1")[2].partition("</h1>")[0]
    balance = Balance()
    balance.feed(whole)
    assert balance.open == []


@given(st.text())
def test_a_text_in_a_table_never_opens_a_tag(text):
    def make(text):
        field = Field(text, (text,))
        lines = [Line(Field(text)), Line(field, (field,)), Line(field, (field,), wide=True)]
        shown = Shown(name="t", title=text, heads=(text, text), lines=lines, note=text, align="")
        return html.render("table.html.j2", title=text, shown=shown)

    assert make(f"x{text}").count("<") == make("x").count("<")


def test_other_studies_with_results_stay_on_the_page_after_those_of_the_call(made):
    made()
    other = make_project(title="Another study")
    other.studies["other"] = other.studies.pop(STUDY)
    other.published["other"], other.scores["other"] = other.published.pop(STUDY), []
    other.config.studies[:] = ["other"]
    plan = write_plan(plan_of(other, "other"))
    for name in ("results.csv", "cells.csv", "answers.csv", "claims.csv"):
        Path("results/other").mkdir(exist_ok=True)
        Path(f"results/other/{name}").write_text(Path(f"results/{STUDY}/{name}").read_text())
    page.write_report([plan], Path("results"), Path("report.html"))
    whole = Path("report.html").read_text()
    assert -1 < whole.index('id="other"') < whole.index(f'id="{STUDY}"')


def test_pages_and_pictures_that_are_not_made_any_more_are_removed(made):
    Path(f"results/{STUDY}/tables").mkdir(parents=True)
    Path(f"results/{STUDY}/figures").mkdir()
    for stale in ("tables/old.html", "figures/old.svg"):
        Path(f"results/{STUDY}/{stale}").write_text("old")
    made(drawn=True)
    assert not list(Path("results").rglob("old.*"))
    assert Path(f"results/{STUDY}/figures/answer.svg").is_file()
    assert Path(f"results/{STUDY}/tables/cells.html").is_file()


# Records


def unpacked(whole):
    packed = re.findall(r'data-packed="([^"]*)"', whole)
    documents = {}
    for text in packed:
        for heading, parts in json.loads(zlib.decompress(base64.b64decode(text))).items():
            for run, part in parts.items():
                documents.setdefault(run, {})[heading] = part
    return documents


def test_every_run_has_its_documents_in_the_page(made):
    _, whole = made()
    documents = unpacked(whole)
    assert len(documents) == 12
    one = documents[f"{STUDY}/cpu/workers=1~decode=host/rep2"]
    assert one["Commit"] == "84b8b64"
    assert one["Spec"]["settings"]["train"]["batch_size"] == 8
    assert one["Record"]["measurement"]["samples_per_s"] == RATES[1]
    assert one["Environment"]["packages"]["torch"] == "2.13.0"
    assert '"step": 1,' in one["Raw events (events.jsonl)"]


def test_no_secret_is_in_the_documents(made):
    token = "hf_" + 9 * "aB3d"

    def edit(record):
        environment = {"HTTP_PROXY": f"http://me:{token}@proxy"}
        return replace(record, provenance=replace(record.provenance, environment=environment))

    _, whole = made(edit=edit)
    assert token not in json.dumps(unpacked(whole)) + whole


def test_an_anchor_stands_for_all_runs_of_a_cell_once():
    cells = [CellOf(study="s", device="cpu", cell=name) for name in ("a=1", "b=2", "a=1")]
    assert html.anchors([*cells, None]) == ["s/cpu/a=1", "s/cpu/b=2"]


def test_machines_list_what_differs_between_runs(made):
    def edit(record):
        packages = {"torch": "2.13.0" if record.repeat > 1 else "2.12.0"}
        return replace(record, provenance=replace(record.provenance, packages=packages))

    study, _ = made(edit=edit)
    ((label, facts),) = provenance.machines(study)
    assert label == "CPU"
    assert facts["Packages"] == "torch 2.12.0, torch 2.13.0"
    assert facts["Model"] == "bridgetower-tiny, 3,812,097 parameters"
    assert any("torch" in statement.text for statement in remarks.remarks(study))


def test_what_the_data_lack_is_in_every_study(made):
    study, whole = made()
    found = {
        one.text for one in remarks.remarks(study) if "data" in one.text or "splits" in one.text
    }
    assert found == {
        "Of the data, 2 of 542 images and 1,002 of 1,600 rows were left out: "
        f"{EVIL} (1,000 rows) and no caption (2 rows).",
        "3 images are in several splits, so scores after training may be too high.",
    }
    assert "1,002 of 1,600 rows were left out" in words(whole)


def test_the_limit_of_each_setting_is_under_why(made):
    study, whole = made()
    (statement,) = [one for one in remarks.reasons(study) if "computing" in one.text]
    assert statement.text in words(whole)
    baseline = next(cell for cell in study.cells if cell.cell == "workers=0~decode=host")
    gain = MODEL_ALONE / RATES[0] - 1
    assert baseline.gain_low < gain < baseline.gain_high


def test_levels_that_a_study_leaves_out_everywhere_are_named_with_the_reason(made):
    levels = (0, 1, 2, 3, 4, 5, 6, 7)
    parts = [Exclude(levels={"workers": n}, why="Too many for a test.") for n in levels[2:]]
    parts.append(Exclude(levels={"workers": 1}, unless={"decode": ["host"]}, why="Host only."))
    study, whole = made(make_project(("gaudi2",), levels=levels, exclude=parts))
    words = sentences.excluded(study)
    assert "workers 2, 3, 4, 5 and 2 more (too many for a test)" in words
    assert "Host only" not in words
    assert words in first_screen(whole)
    assert sentences.excluded(made()[0]) == ""


def test_answers_at_other_levels_are_announced(made):
    several, whole = made(make_project(("gaudi2",), within=["decode"]))
    assert sentences.other_levels(several) == "decode"
    assert "under &#34;Why&#34;" in first_screen(whole) or 'under "Why"' in first_screen(whole)
    assert sentences.other_levels(made()[0]) == ""
