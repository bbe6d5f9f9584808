"""The files in report/: a short caption for every kind, and the frame of the first page."""

import json
import re
from pathlib import Path

import jinja2
import pytest
from docutils.core import publish_parts
from report_samples import EVIL, FIGURES, TABLES, table

from feedrate.config.study import Study
from feedrate.config.values import load
from feedrate.report.overview import to_html
from feedrate.results.collect import FEWEST

ROOT = Path(__file__).resolve().parents[3]
CAPTIONS = ROOT / "report/captions"
STUDIES = sorted((ROOT / "config/studies").glob("*.yaml"))


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTIONS.glob("*.rst")))
def test_captions_are_short_plain_and_valid(name):
    source = (CAPTIONS / f"{name}.rst").read_text()
    assert 2 <= len(source.splitlines()) < 10
    assert all(len(line) <= 100 for line in source.splitlines())
    assert "{{" not in source
    assert "{%" not in source
    assert "system-message" not in to_html(source)
    assert jinja2.Environment().from_string(source).render() == source.rstrip("\n")


SOMETIMES = [
    ("figure_ladder", "error bars"),
    ("figure_latency", "interval"),
    ("figure_loss", "flag a cell"),
    ("figure_sizes", "intervals"),
    ("table_cells", "intervals from"),
    ("table_latency", "MFU"),
    ("table_published", "interval"),
    ("table_published", "noisy"),
    ("table_training", "loss at the end"),
    ("table_training", "MFU is"),
    ("table_training", "time of an epoch"),
]
"""Captions, and what not every page with the caption shows."""


@pytest.mark.parametrize(("name", "what"), SOMETIMES)
def test_a_caption_says_when_there_is_what_not_every_page_has(name, what):
    text = " ".join((CAPTIONS / f"{name}.rst").read_text().split())
    sentences = [one for one in re.split(r"(?<=\.) ", text) if what in one]
    assert sentences
    assert all(re.search(r"\b(if|where)\b", one, re.IGNORECASE) for one in sentences)


@pytest.mark.parametrize("kind", TABLES)
def test_both_memories_are_told_apart_beside_their_columns(project, inputs, kind):
    if "Peak memory (GiB)" in table(project, inputs, kind):
        caption = " ".join((CAPTIONS / f"table_{kind}.rst").read_text().split())
        assert "*Peak memory* is" in caption
        assert "*Host memory* is" in caption


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTIONS.glob("*.rst")))
def test_a_caption_explains_a_word_of_its_page_once(name):
    words = re.findall(r'"([^"]+)"', (CAPTIONS / f"{name}.rst").read_text())
    assert len(words) == len(set(words))


def test_the_flag_of_a_loss_needs_as_many_repeats_as_its_captions_say():
    assert FEWEST == 2
    assert "needs two repeats of both cells" in " ".join(
        (CAPTIONS / "figure_loss.rst").read_text().split()
    )


def test_every_kind_has_a_caption_and_every_caption_is_shown():
    """An item of a study may have a caption of its own, instead of its kind's."""
    kinds = {f"table_{kind}" for kind in TABLES} | {f"figure_{kind}" for kind in FIGURES}
    studies = [load(path, Study) for path in STUDIES]
    shown = {item.caption for study in studies for item in [*study.tables, *study.figures]}
    there = {path.stem for path in CAPTIONS.glob("*.rst")}
    assert there >= kinds
    assert there <= kinds | shown


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_item_of_a_study_has_its_caption(path):
    study = load(path, Study)
    for item in [*study.tables, *study.figures]:
        assert (CAPTIONS / f"{item.caption}.rst").is_file()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_no_question_of_ours_has_a_second_margin(path):
    """The smallest effect is the margin already."""
    claims = load(path, Study).claims
    assert [one.id for one in claims if one.of == "ours" and 0 < (one.no_less_than or 1) < 1] == []


def test_the_first_page_includes_the_article_unchanged(tmp_path, monkeypatch):
    """As Snakemake does: Jinja, then docutils, then JSON in a script element."""
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    article = '<div class="feedrate"><p>{{ 7 * 7 }} &lt;/script&gt; ünïcode</p></div>'
    Path("results/overview.html").write_text(article, encoding="utf-8")
    source = (ROOT / "report/workflow.rst").read_text() + "\n\n.. _Workflow: javascript:x\n"
    page = publish_parts(jinja2.Environment().from_string(source).render(), writer="html")
    assert article in page["html_body"]
    assert "</script" not in json.dumps(page["html_body"])
    assert EVIL not in page["html_body"]


def test_the_style_sheet_covers_desk_phone_and_paper():
    style = (ROOT / "report/style.css").read_text()
    assert style.count("{") == style.count("}")
    assert "@media print" in style
    assert "max-width: 50rem" in style
    assert "</" not in style
    assert "url(" not in style
