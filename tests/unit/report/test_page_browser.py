"""The overview in a real browser: records, tables, marks, a phone, a dark screen and paper."""

import base64
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from report_samples import STUDY, make_project, plan_of, write_pages, write_results

from feedrate.report import overview

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

CELL = f"{STUDY}/cpu/workers=1~decode=host"
PAPER = {"width": 703, "height": 1000}
"""An A4 page within its margins, at 96 pixels an inch."""
WIDER = """() => [...document.querySelectorAll('.scroll')]
  .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.ariaLabel)"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The overview of a study with one real figure and with log files."""
    root, project = tmp_path_factory.mktemp("page"), make_project()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        inputs = write_results(root, project)
        write_pages(project, inputs, drawn=("answer", "speedup"))
        for events in root.rglob("events.jsonl"):
            events.with_name("train.log").write_text("first line </script><b>bold</b>\nlast line\n")
        path = root / "results/overview.html"
        path.write_text(overview.render([plan_of(project)], root / "results", {}))
    return path.as_uri()


@pytest.fixture
def framed(address):
    """The table of all cells as a result in Snakemake's report."""
    table = Path(address.removeprefix("file://")).with_name(STUDY) / "tables/cells.html"
    return f"data:text/html;base64,{base64.b64encode(table.read_bytes()).decode()}"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser, address):
    """Opens the overview, or another page beside it, with options of a browser's context; any error
    on it fails the test."""
    contexts, errors = [], []
    folder = address.rpartition("/")[0]

    def opened(anchor="", name="overview.html", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: errors.append(request.url))
        page.goto(f"{folder}/{name}{anchor}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [one for one in errors if not one.startswith((folder, "data:"))] == []


def test_it_responds_where_snakemakes_report_inserts_it_as_text(open_page):
    page = open_page()
    page.evaluate("""() => {
        const text = document.documentElement.outerHTML;
        document.head.replaceChildren();
        document.body.innerHTML = `<div id="app">${text.replaceAll('data-live=""', "")}</div>`;
    }""")
    page.wait_for_selector("main[data-live]")
    page.evaluate("document.querySelector('tr .record').click()")
    page.wait_for_selector("dialog[open] pre")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_nothing_serious(open_page, scheme, width):
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.add_style_tag(content=".feedrate .far{content-visibility:visible}")
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    for _ in ("the page", "a record")[: 1 if scheme == "dark" else 2]:
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in bad] == []
        assert len(found["passes"]) > 10
        page.evaluate("document.querySelector('tr .record').click()")
        page.wait_for_selector("dialog pre")


def test_a_number_leads_to_its_record_spec_logs_commit_and_environment(open_page):
    page = open_page()
    rows = page.locator(f"[id='{STUDY}-table-published'] ~ .scroll tr:has-text('CPU')")
    link = rows.locator("td a.record").first
    link.click()
    page.wait_for_selector("dialog[open] details:nth-of-type(3)")
    box = page.locator("dialog")
    said = box.locator("details").first.inner_text()
    for fact in ("84b8b64", '"seed"', '"torch": "2.13.0"', "last line"):
        assert fact in said
    assert "</script><b>bold</b>" in said
    page.keyboard.press("Escape")
    box.wait_for(state="detached")  # it is removed by its close event, which comes a little later
    assert link.evaluate("link => link === document.activeElement")


def test_a_finding_leads_to_the_records_that_it_rests_on(open_page):
    page = open_page()
    page.locator("li:has-text('From workers = 0') b a.record").click()
    page.wait_for_selector("dialog[open] details:nth-of-type(6)")
    names = page.locator("dialog summary").all_inner_texts()
    assert [sum(one.startswith(f"CPU, {n}, host") for one in names) for n in (0, 2)] == [3, 3]


def test_a_ratio_leads_to_the_records_of_all_its_cells(open_page):
    page = open_page()
    box = page.locator(f"[id='{STUDY}-table-claims'] ~ .scroll")
    box.locator("tr:has-text('at least 1') a.record").first.click()
    page.wait_for_selector("dialog[open] details:nth-of-type(6)")
    names = page.locator("dialog summary").all_inner_texts()
    assert len([one for one in names if "2, host" in one]) == 3
    assert len([one for one in names if "0, host" in one]) == 3


@pytest.mark.parametrize("table", ["claims", "cells", "quality", "comparability", "window"])
def test_each_row_of_numbers_leads_to_a_record_from_any_field(open_page, table):
    page = open_page()
    page.add_style_tag(content=".feedrate .far{content-visibility:visible}")
    links = page.locator(f"[id='{STUDY}-table-{table}'] ~ .scroll tr:has(.record)")
    links.first.locator("td").last.click()
    page.wait_for_selector("dialog[open] details")


def test_a_table_in_a_frame_of_snakemakes_report_opens_the_records_of_its_first_page(
    open_page, framed
):
    """The report shows a result instead of the first page, as an address that may ask nothing."""
    page = open_page()
    page.evaluate(
        """source => {
        const frame = document.createElement("iframe");
        frame.src = source;
        document.body.replaceChildren(frame);
        document.head.replaceChildren();
    }""",
        framed,
    )
    page.frame_locator("iframe").locator("th a.record").first.click()
    page.wait_for_selector("dialog[open] details")
    assert page.locator("dialog").evaluate("box => getComputedStyle(box).padding") != "0px"
    assert "84b8b64" in page.locator("dialog details").first.inner_text()


def test_a_record_can_be_linked_from_elsewhere(open_page):
    page = open_page(f"#{CELL}/rep2")
    page.wait_for_selector("dialog[open] details")
    assert page.locator("dialog details").count() == 1
    assert "repeat 2" in page.locator("dialog summary").inner_text()


def test_every_link_into_the_page_leads_somewhere(open_page):
    missing = "links => links.filter(a => !document.getElementById(decodeURIComponent(a.hash)"
    missing += ".slice(1))).map(a => a.outerHTML)"
    page = open_page()
    assert page.locator("a.record").count() > 20
    assert page.locator("a[href^='#']").evaluate_all(missing) == []


def test_without_its_script_the_page_says_the_same(open_page):
    page = open_page(java_script_enabled=False)
    page.locator(f"a.record[href='#{CELL}']").first.click()
    assert page.url.endswith(f"#{CELL}")
    row = page.locator(f"tr[id='{CELL}/rep1']")
    assert "rep1-0a1b2c3d" in row.inner_text()
    assert page.locator("thead button").count() == 0


def test_tables_sort_and_filter_by_keyboard(open_page):
    page = open_page()
    box = page.locator(".scroll").filter(has=page.locator("th", has_text="Started (UTC)"))
    head = box.locator("thead th").nth(1)
    rates = "rows => rows.filter(r => !r.hidden).map(r => parseFloat(r.cells[1].textContent))"

    def column():
        values = box.locator("tbody tr").evaluate_all(rates)
        return [value for value in values if value is not None and value == value]

    before = column()
    head.locator("button").focus()
    for order, wanted in (
        ("ascending", sorted(before)),
        ("descending", sorted(before, reverse=True)),
        ("none", before),
    ):
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        assert column() == wanted
    assert before != sorted(before)
    page.get_by_label("Filter the rows of Every run").fill("16, host")
    assert len(column()) == 3
    assert "3 of 12 rows" in page.get_by_role("status").filter(has_text="rows").inner_text()


def test_no_page_is_wider_than_a_phone_and_no_table_is_cut(open_page):
    page = open_page(viewport={"width": 375, "height": 800})
    page.add_style_tag(content=".feedrate .far{content-visibility:visible}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.evaluate(WIDER)  # they scroll in their boxes
    style = "boxes => boxes.every(box => getComputedStyle(box).overflowX === 'auto')"
    assert page.locator(".scroll").evaluate_all(style)


def test_figures_on_a_phone_scroll_in_their_boxes_with_legible_words(open_page):
    sizes = r"""() => [...document.querySelectorAll('figure img')].flatMap(image => {
      const picture = decodeURIComponent(image.src);
      const scale = image.width / (/viewBox='0 0 (\S+)/.exec(picture) || [])[1];
      return [...picture.matchAll(/font(?:-size)?: (?:\w+ )?([\d.]+)px/g)].map(f => f[1] * scale);
    })"""
    hint = "getComputedStyle(document.querySelector('figure'), '::before').content"
    page = open_page(viewport={"width": 390, "height": 800})
    page.add_style_tag(content=".feedrate .far{content-visibility:visible}")
    sizes_px = page.evaluate(sizes)
    assert len(sizes_px) > 20
    assert min(sizes_px) >= 9
    scrolls = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).length"
    assert page.locator("figure").evaluate_all(scrolls) == page.locator("figure").count()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "sideways" in page.evaluate(hint)
    assert open_page(viewport={"width": 1060, "height": 800}).evaluate(hint) == "none"


def test_a_dark_screen_gets_a_dark_page(open_page):
    color = "getComputedStyle(document.querySelector('main')).backgroundColor"
    assert open_page(color_scheme="light").evaluate(color) == "rgb(255, 255, 255)"
    page = open_page(color_scheme="dark")
    assert page.evaluate(color) == "rgb(22, 22, 22)"
    assert "invert" in page.locator("img").first.evaluate("img => getComputedStyle(img).filter")


def test_paper_is_white_and_cuts_no_table(open_page):
    page = open_page(color_scheme="dark", viewport=PAPER)
    page.emulate_media(media="print")
    assert page.evaluate(WIDER) == []
    color = "getComputedStyle(document.querySelector('main')).backgroundColor"
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").count(b"/Type /Page\n") > 3


def test_heads_of_tables_are_repeated_on_paper(open_page):
    """Chromium does not repeat a head on the next page if it contains the box of a button."""
    page = open_page(viewport=PAPER)
    page.emulate_media(media="print")
    displays = "buttons => buttons.map(button => getComputedStyle(button).display)"
    assert set(page.locator("thead button").evaluate_all(displays)) == {"contents"}
