"""The page in a real browser: records, sorting, a phone, a dark screen and paper."""

import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from report_samples import STUDY, make_project, plan_of, write_results

from feedrate.report import page as pages
from feedrate.results.study_plan import write_plan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

CELL = f"{STUDY}/cpu/workers=1~decode=host"
PAPER = {"width": 703, "height": 1000}
"""An A4 page within its margins, at 96 pixels an inch."""
WIDER = """() => [...document.querySelectorAll('.scroll')]
  .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.ariaLabel)"""
OPEN = "document.querySelectorAll('details').forEach(part => part.open = true)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a study with log files."""
    root = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_results(root, make_project())
        plan, results = write_plan(plan_of(make_project())), Path("results")
        for events in root.rglob("events.jsonl"):
            events.with_name("train.log").write_text("first line </script><b>bold</b>\nlast line\n")
        pages.plot_figures(plan, results / STUDY)
        pages.write_report([plan], results, Path("report.html"))
    return (root / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, address):
    """Opens the page with options of a browser's context; an error or a request fails the test."""
    contexts, errors = [], []

    def opened(anchor="", *, unfolded=True, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: errors.append(request.url))
        page.goto(f"{address}{anchor}")
        if unfolded and options.get("java_script_enabled", True):
            page.evaluate(OPEN)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [one for one in errors if not one.startswith((address, "data:"))] == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_nothing_serious(open_page, scheme, width):
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    for _ in ("the page", "a record")[: 1 if scheme == "dark" else 2]:
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in bad] == []
        assert len(found["passes"]) > 10
        page.evaluate("document.querySelector('td .record').click()")
        page.wait_for_selector("dialog pre")


def test_a_number_leads_to_its_record_spec_logs_commit_and_environment(open_page):
    page = open_page()
    link = page.locator("td a.record").first
    link.click()
    page.wait_for_selector("dialog[open] details:nth-of-type(3)")
    box = page.locator("dialog")
    words = box.locator("details").first.inner_text()
    for fact in ("84b8b64", '"seed"', '"torch": "2.13.0"', "last line"):
        assert fact in words
    assert "</script><b>bold</b>" in words
    page.keyboard.press("Escape")
    box.wait_for(state="detached")  # it is removed by its close event, which comes a little later
    assert link.evaluate("link => link === document.activeElement")


def test_the_answer_leads_to_the_records_of_both_cells(open_page):
    page = open_page()
    page.locator(".answer a.record").click()
    page.wait_for_selector("dialog[open] details:nth-of-type(6)")
    names = page.locator("dialog summary").all_inner_texts()
    assert [sum(one.startswith(f"CPU, {n}, host") for one in names) for n in (0, 1)] == [3, 3]


def test_a_record_can_be_linked_from_elsewhere_and_its_part_opens(open_page):
    page = open_page(f"#{CELL}/rep2", unfolded=False)
    page.wait_for_selector("dialog[open] details")
    assert page.locator("dialog details").count() == 1
    assert "repeat 2" in page.locator("dialog summary").inner_text()
    assert page.locator(f"details[id='{STUDY}-runs']").get_attribute("open") is not None


def test_every_link_into_the_page_leads_somewhere(open_page):
    missing = "links => links.filter(a => !document.getElementById(decodeURIComponent(a.hash)"
    missing += ".slice(1))).map(a => a.outerHTML)"
    page = open_page()
    assert page.locator("a.record").count() > 20
    assert page.locator("a[href^='#']").evaluate_all(missing) == []


def test_without_its_script_the_page_says_the_same(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".answer").is_visible()
    assert page.locator("summary").count() == 4
    assert page.locator("thead button").count() == 0


def test_tables_sort_by_keyboard(open_page):
    page = open_page()
    box = page.locator(".scroll").filter(has=page.locator("th", has_text="Started (UTC)"))
    head = box.locator("thead th").nth(1)
    rates = "rows => rows.map(row => parseFloat(row.cells[1].textContent))"

    def column():
        return box.locator("tbody tr").evaluate_all(rates)

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


@pytest.mark.parametrize("width", [375, 390])
def test_the_page_fits_a_phone_with_legible_figures(open_page, width):
    sizes = r"""() => [...document.querySelectorAll('figure img')].flatMap(image => {
      const picture = decodeURIComponent(image.src);
      const scale = image.width / (/viewBox='0 0 (\S+)/.exec(picture) || [])[1];
      return [...picture.matchAll(/font(?:-size)?: (?:\w+ )?([\d.]+)px/g)].map(f => f[1] * scale);
    })"""
    page = open_page(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDER)  # they scroll in their boxes
    sizes_px = page.evaluate(sizes)
    assert len(sizes_px) > 20
    assert min(sizes_px) >= 7


def test_a_dark_screen_gets_a_dark_page(open_page):
    color = "getComputedStyle(document.querySelector('body')).backgroundColor"
    assert open_page(color_scheme="light").evaluate(color) == "rgb(255, 255, 255)"
    page = open_page(color_scheme="dark")
    assert page.evaluate(color) == "rgb(22, 22, 22)"
    assert "invert" in page.locator("img").first.evaluate("img => getComputedStyle(img).filter")


@pytest.mark.parametrize(("unfolded", "most"), [(False, 2), (True, 12)])
def test_paper_is_white_cuts_no_table_and_takes_few_pages(open_page, unfolded, most):
    page = open_page(unfolded=unfolded, color_scheme="dark", viewport=PAPER)
    page.emulate_media(media="print")
    assert page.evaluate(WIDER) == []
    color = "getComputedStyle(document.querySelector('body')).backgroundColor"
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").count(b"/Type /Page\n") <= most
