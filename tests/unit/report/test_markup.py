import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_samples import EVIL, STUDY, table

from feedrate.config.errors import ConfigError
from feedrate.report import markup, overview, page
from feedrate.report.rows import CellOf, Inputs


@given(st.text())
def test_a_text_never_opens_a_tag(text):
    made = markup.el("p", text, title=text)
    assert made.count("<") == 2
    assert made.startswith("<p")
    assert made.endswith("</p>")


def test_text_is_escaped_once_where_it_enters():
    cell = markup.join(EVIL, markup.small(EVIL))
    whole = page.page(EVIL, markup.table([EVIL], [markup.row(cell, EVIL)]))
    assert "<script" not in whole
    assert "&lt;script&gt;" in whole
    assert "&amp;lt;" not in whole


def test_a_page_refers_to_no_other_file():
    whole = page.page("A table", markup.el("p", "text"))
    assert not re.search(r" (src|href)=|@import|url\(", whole)


def test_the_content_of_a_page_can_be_read_back(tmp_path):
    content = markup.table(["a", "b"], [markup.row("1", EVIL)])
    path = tmp_path / "table.html"
    path.write_text(page.page("A table", content))
    assert overview.content_of(path) == content


def test_a_page_that_feedrate_did_not_make_is_refused(tmp_path):
    path = tmp_path / "table.html"
    path.write_text("<p>hello</p>")
    with pytest.raises(ConfigError, match=r"table\.html: not a table page"):
        overview.content_of(path)


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", ""])
def test_only_web_addresses_become_links(address):
    assert "href" not in markup.link("source", address)
    assert 'href="https://example.org"' in markup.link("source", "https://example.org")


def cells(*names):
    return [CellOf(study="s", device="cpu", cell=name) for name in names]


def test_a_row_leads_to_the_records_of_all_its_cells():
    made = markup.row("r", "1", of=cells("a=1", "b=2", "a=1"))
    link = '<a href="../../overview.html#s/cpu/a=1" data-more="s/cpu/b=2" class="record">r</a>'
    assert made == f'<tr><th scope="row">{link}</th><td>1</td></tr>'
    assert "href" not in markup.row("r", "1", of=[None])


def test_in_the_overview_links_stay_in_the_page_and_files_keep_their_place(tmp_path):
    trace = "../../../runs/s/cpu/a=1/rep1-0a1b2c3d/trace.json.gz"
    made = markup.join(markup.record_link("1", *cells("a=1")), markup.el("a", "t", href=trace))
    (tmp_path / "cells.html").write_text(page.page("All cells", made))
    inside = overview.content_of(tmp_path / "cells.html")
    assert 'href="#s/cpu/a=1"' in inside
    assert 'href="../runs/s/cpu/a=1/rep1-0a1b2c3d/trace.json.gz"' in inside


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
