"""The files in report/: a short caption for every kind, and the frame of the first page."""

import json
from pathlib import Path

import jinja2
import pytest
from docutils.core import publish_parts
from report_samples import EVIL, FIGURES, TABLES

from feedrate.config.study import Study
from feedrate.config.values import load
from feedrate.report.overview import to_html

ROOT = Path(__file__).resolve().parents[3]
CAPTIONS = ROOT / "report/captions"
NAMES = sorted({path.stem for path in CAPTIONS.glob("*.rst")} - {"figure", "table"})
"""The captions of the first page; those of Snakemake's own report are templates."""
STUDIES = sorted((ROOT / "config/studies").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_captions_are_short_plain_and_valid(name):
    source = (CAPTIONS / f"{name}.rst").read_text()
    assert 2 <= len(source.splitlines()) < 10
    assert all(len(line) <= 100 for line in source.splitlines())
    assert "{{" not in source
    assert "{%" not in source
    assert "system-message" not in to_html(source)
    assert jinja2.Environment().from_string(source).render() == source.rstrip("\n")


def test_every_kind_has_a_caption_and_every_caption_is_shown():
    """An item of a study may have a caption of its own, instead of its kind's."""
    kinds = {f"table_{kind}" for kind in TABLES} | {f"figure_{kind}" for kind in FIGURES}
    studies = [load(path, Study) for path in STUDIES]
    shown = {item.caption for study in studies for item in [*study.tables, *study.figures]}
    assert kinds <= {*NAMES} <= kinds | shown


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
