"""Tables as data, and as HTML: texts are escaped, and numbers lead to their records."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_samples import EVIL, STUDY, table

from feedrate.report import html
from feedrate.report.rows import CellOf, Inputs
from feedrate.report.table import Column, Field, Row, Table, listed


def page(*parts, title="A table"):
    return html.render("table.html.j2", title=title, parts=parts)


def rows_of(page):
    return re.findall(r"<tr.*?</tr>", page.partition("<tbody>")[2], re.DOTALL)


@given(st.text())
def test_a_text_never_opens_a_tag(text):
    def made(text):
        field = Field(text, [text], code=text, file=text)
        rows = [text, Row(field, [field]), Row(text, wide=text)]
        return page(text, Table(text, listed(text), rows), title=text)

    assert made(f"x{text}").count("<") == made("x").count("<")


def test_text_is_escaped_once():
    whole = page(EVIL, Table(EVIL, listed(EVIL), [Row(EVIL, [Field(EVIL, [EVIL])])]), title=EVIL)
    assert "<script" not in whole
    assert "&lt;script&gt;" in whole
    assert "&amp;lt;" not in whole
    head, _, body = whole.partition("<main")
    assert not re.search(r" (src|href)=", body), "it refers to no other file"
    assert not re.search(r"@import|url\(", head)


def cells(*names):
    return [CellOf(study="s", device="cpu", cell=name) for name in names]


def test_a_row_leads_to_the_records_of_all_its_cells():
    heading = Field("r", of=cells("a=1", "b=2", "a=1"))
    (row,) = rows_of(page(Table("", listed(""), [Row(heading, ["1"])])))
    link = '<a href="../../overview.html#s/cpu/a=1" data-more="s/cpu/b=2" class="record">r</a>'
    assert row == f'<tr><th scope="row">{link}</th><td>1</td></tr>'
    (row,) = rows_of(page(Table("", listed(""), [Row(Field("r", of=[None]), ["1"])])))
    assert row == '<tr><th scope="row">r</th><td>1</td></tr>'


def test_an_optional_column_is_left_out_where_no_row_has_a_value():
    columns = [Column("A", "a"), Column("B", "b", str, unit="s", optional=True)]

    class Item:
        a, b = "1", "\N{EN DASH}"

    def item(b):
        made = Item()
        made.b = b
        return made

    assert Table("", columns, [Row("", item("2")), Row("", Item())]).heads == ["", "A", "B (s)"]
    (line,) = Table("", columns, [Row("", Item())]).lines
    assert line.fields == [Field("1")]


@pytest.mark.parametrize("kind", ["cells", "training", "latency", "equal", "window"])
def test_a_noisy_cell_is_marked_and_a_note_says_what_that_means(project, inputs, kind, monkeypatch):
    page = re.sub(r"</?a\b[^>]*>", "", table(project, inputs, kind))
    assert '<th scope="row">16, host<small>noisy</small></th>' in page
    assert page.count("<small>noisy</small>") == page.count("<p>noisy: ") == 1
    quiet = [replace(cell, noisy=False) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: quiet)
    page = table(project, inputs, kind)
    assert "<small>noisy</small>" not in page
    assert "<p>noisy: " not in page
