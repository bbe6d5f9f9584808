import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from report_rows import RATES
from report_samples import (
    EVIL,
    FIGURES,
    STUDY,
    TABLES,
    make_project,
    plan_of,
    study_of,
    write_pages,
    write_results,
)

from feedrate.report import overview, provenance
from feedrate.report.overview import read_captions, to_html

ROOT = Path(__file__).resolve().parents[3]


CAPTIONS = {"table_cells": to_html("Seen *here*: all cells.")}


def render(project, inputs):
    write_pages(project, inputs)
    plans = [plan_of(project, study) for study in project.studies]
    return overview.render(plans, Path("results"), CAPTIONS)


@pytest.fixture
def article(tmp_path, project, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return render(project, write_results(tmp_path, project))


@pytest.fixture
def broken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(("cpu", "gaudi2"), question=EVIL)
    bad = {("cpu", workers): "failed" for workers in RATES} | {("gaudi2", 2): "out_of_memory"}
    bad[("gaudi2", 16)] = "failed"
    bad[("cpu", 1)] = "missing"
    return render(project, write_results(tmp_path, project, bad=bad, cause=EVIL))


def test_the_answer_is_at_the_top_with_its_figure(article):
    assert article.index("How fast, and why?") < article.index("CPU: use workers = 1.")
    assert article.index("CPU: use workers = 1.") < article.index("<img")
    assert article.index("<img") < article.index("What limits each setting")
    assert 'alt="CPU: use workers = 1."' in article


def test_all_tables_and_figures_are_in_it_with_anchors(article):
    for name in TABLES:
        assert f'id="{STUDY}-table-{name}"' in article
        assert f'href="#{STUDY}-table-{name}"' in article
    for name in FIGURES:
        assert (f'id="{STUDY}-figure-{name}"' in article) == (name != "answer")
    assert article.count("<img") == len(FIGURES)


def test_the_overview_refers_to_no_other_file(article):
    addresses = re.findall(r'(?:src|href)="([^"]{1,20})', article)
    assert {a.split(":")[0].split("#")[0] for a in addresses} == {"data", "", "https"}
    assert "@import" not in article
    assert "url(" not in article


class Document(HTMLParser):
    """The declarations of a page, and whether each element that opens also closes."""

    VOID = ("meta", "img", "br", "col")

    def __init__(self, page):
        super().__init__()
        self.doctype, self.attributes, self.open, self.title = "", {}, [], ""
        self.feed(page)

    def handle_decl(self, decl):
        self.doctype = decl

    def handle_starttag(self, tag, attrs):
        self.attributes.setdefault(tag, []).append(dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "title":
            self.title += data


def test_it_is_a_complete_page_that_declares_its_charset_language_and_title(article):
    page = Document(article)
    assert page.doctype.lower() == "doctype html"
    assert page.attributes["html"] == [{"lang": "en"}]
    assert page.attributes["meta"][0] == {"charset": "utf-8"}
    assert page.title == "Data loading of a model"
    assert len(page.attributes["main"]) == len(page.attributes["h1"]) == 1
    assert page.open == []


def test_it_survives_the_script_element_of_the_report_page(article, broken):
    for page in (article, broken):
        assert not re.search(r"</?script|<!--", page, re.IGNORECASE)


def test_one_minute_tells_value_verdict_and_what_to_do(article, broken):
    minute, rest = (re.sub("<[^>]*>", "", part) for part in article.split("</section>", 1))
    assert (
        "CPU: 14.10 samples/s (13.96 to 14.24) with workers = 1, compute-bound: use it, and keep "
        "the loader: the device hardly waits for it." in minute
    )
    assert "Claims of the source: no data here (1)" in minute
    assert "Our own questions: holds (1)" in minute
    assert "What limits each setting" in rest
    minute = broken.partition("</section>")[0]
    said = re.sub("<[^>]*>", "", minute)
    assert "CPU: no answer yet. None of 4 cells has a valid result" in said
    assert "with runs that do not count" in minute
    assert f'href="#{STUDY}/gaudi2/workers=1~decode=host"' in minute


def test_documents_of_runs_are_packed_and_say_what_cannot_be_read(tmp_path, project, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_secret_value")
    inputs = write_results(tmp_path, project)
    run = inputs.runs(STUDY)[0]
    record = inputs.records(STUDY)[run.folder]
    log = Path(run.folder) / "train.log"
    log.write_text("".join(f"line {n} hf_secret_value\n" for n in range(40)))
    found = provenance.documents(run, record)
    assert [title.split(" (")[0] for title in found] == [
        "Commit", "Folder", "Record", "Spec", "Environment", "Raw events", "Raw log"
    ]  # fmt: skip
    lines = found["Raw log (train.log)"].splitlines()
    assert len(lines) == provenance.FIRST + 1 + provenance.LAST
    assert lines[provenance.FIRST] == "(24 lines between)"
    assert lines[-1] == "line 39 ***"
    packed = zlib.decompress(base64.b64decode(provenance.pack({"a": found})))
    assert json.loads(packed) == {name: {"a": one} for name, one in found.items()}
    packed = provenance.pack(
        {"a": {"Environment": {"X_TOKEN": "abc"}, "Line": "password=abcdefgh"}}
    )
    assert b"abc" not in zlib.decompress(base64.b64decode(packed))
    cut = provenance.WIDE - 8  # within a token
    log.write_text(f"{'x' * cut} hf_secret_value\n{'x' * cut} ghp_0123456789abcdefABCD\n")
    shown = provenance.documents(run, record)["Raw log (train.log)"]
    assert "hf_s" not in shown
    assert "ghp" not in shown
    log.unlink()
    assert "cannot be read" in provenance.documents(run, record)["Raw log (train.log)"]
    assert "There is none" in provenance.documents(run, None)["Record"]


def test_every_number_leads_to_a_record_and_a_commit(article):
    assert f"runs/{STUDY}/cpu/workers=1~decode=host/rep3-0a1b2c3d" in article
    for fact in ("A processor of 2 cores", "84b8b64", "torch 2.13.0", "2 of the host&#39;s 8"):
        assert fact in article
    assert "python -m feedrate train --spec spec.json" in article
    assert "first run started 2026-11-21 09:01, last 2026-11-21 09:03 (UTC)" in article


def test_failures_come_before_the_answer(broken):
    broken = broken.partition("</section>")[2]  # after the page of one minute
    failed, answered = broken.index("cells with runs that do not count"), broken.index("no answer")
    assert failed < answered < broken.index("Gaudi2: use workers = 1.")
    assert "Gaudi2, workers = 2:</a></b> out of memory." in broken
    assert "CPU, workers = 1:</a></b> no result. &lt;script" in broken
    assert "Gaudi2, workers = 2, decode = device:<" not in broken
    assert "and 1 more:" in broken


def test_texts_from_data_and_configuration_are_escaped(broken):
    assert "&lt;script&gt;alert(" in broken
    assert "<script" not in broken
    assert "{{ 7 * 7 }}" in broken


def test_two_studies_each_have_their_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = make_project()
    study = msgspec.structs.replace(one.studies[STUDY], question="And the second?")
    both = msgspec.structs.replace(
        one,
        studies={**one.studies, "second": study},
        published={**one.published, "second": []},
    )
    article = render(both, write_results(tmp_path, both))
    assert "2 studies" in Document(article).title
    assert article.count("<h1>") == 1
    assert f'<h2 id="{STUDY}">How fast, and why?</h2>' in article
    assert '<h2 id="second">And the second?</h2>' in article
    assert article.index('id="second"') < article.index(f'id="{STUDY}-table-cells"')
    assert 'id="second-table-cells"' in article


def test_unreadable_records_omit_only_their_own_facts(tmp_path, project, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = write_results(tmp_path, project)
    for records in tmp_path.rglob("records.jsonl"):
        records.write_text("{}")
    article = render(project, inputs)
    assert "A processor of 2 cores" in article
    assert "torch 2.13.0" not in article


def test_a_caption_can_neither_read_files_nor_pass_html_through(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    made = to_html(
        f".. include:: {tmp_path}/secret.txt\n\n.. raw:: html\n\n   <script>1</script>\n"
    )
    assert "<script" not in made
    assert ">secret<" not in made
    (tmp_path / "figure_x.rst").write_text("A *figure*.")
    assert read_captions([tmp_path / "figure_x.rst"]) == {"figure_x": "<p>A <em>figure</em>.</p>"}


def test_the_code_and_the_packages_of_all_runs_are_listed(project, inputs):
    runs = [replace(one, source_digest=f"{n}" * 64) for n, one in enumerate(inputs.runs(STUDY)[:2])]
    records = inputs.records(STUDY)
    changed = {"packages": {"torch": "2.14.0", "ffcv": "1.0.2"}}
    records[runs[1].folder] = with_provenance(records[runs[1].folder], changed)
    facts = facts_of(project, runs, records)
    assert facts["Source digest"] == "000000000000; 111111111111"
    assert facts["Packages"] == "ffcv 1.0.2, torch 2.13.0, torch 2.14.0, transformers 5.23.0"


def test_the_machines_and_variables_of_all_runs_are_listed(project, inputs):
    told = {"driver": "535.183", "python": "3.12", "environment": {"NCCL_P2P_DISABLE": "1"}}
    told |= {"firmware": {"microcode": "0x2b"}, "host_memory_gib": 31.2}
    others = {"driver": "580.65", "firmware": {"microcode": "0x2c"}, "environment": {}}
    runs, records = inputs.runs(STUDY)[:2], inputs.records(STUDY)
    for run, changes in zip(runs, (told, told | others | {"host_memory_gib": 62.4}), strict=True):
        records[run.folder] = with_provenance(records[run.folder], changes)
    facts = facts_of(project, runs, records)
    assert facts["Driver"] == "535.183; 580.65"
    assert facts["Firmware"] == "microcode 0x2b; microcode 0x2c"
    assert facts["Host memory"] == "31.2 GiB; 62.4 GiB"
    assert facts["Python"] == "3.12 on Linux"
    assert facts["Environment variables"] == "NCCL_P2P_DISABLE=1"


def with_provenance(record, changes):
    return replace(record, provenance=replace(record.provenance, **changes))


def facts_of(project, runs, records, **columns):
    """The rows of facts by name, with these values in the columns of the runs, one a cell."""
    cells = list(dict.fromkeys(run.cell for run in runs))
    changed = [
        replace(run, **{k: values[cells.index(run.cell)] for k, values in columns.items()})
        for run in runs
    ]
    (machine,) = provenance.machines(study_of(project), changed, records)
    return machine.facts


def test_model_batch_and_precision_are_those_of_the_measured_cells(project, inputs):
    runs = [run for run in inputs.runs(STUDY) if run.repeat]
    records = inputs.records(STUDY)
    told = facts_of(project, runs, records)
    assert (told["Model"], told["Batch"]) == ("bridgetower-tiny", "8 per device, bf16")
    told = facts_of(
        project,
        runs,
        records,
        model=["vit-tiny", "swin-tiny", "vit-tiny", "vit-tiny"],
        model_parameters=[1000, 2000, 1000, 1000],
        batch_size=[8, 4, 8, 8],
        precision=["fp32", "fp32", "fp32", "bf16"],
    )
    assert told["Model"] == "vit-tiny (swin-tiny in some cells)"
    assert told["Parameters"] == "1,000 (2,000 in some cells)"
    assert told["Batch"] == "8 (4 in some cells) per device, fp32 (bf16 in some cells)"
