"""The report in a real browser, with no network."""

import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=8000",
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def browse(report, tmp_path, *options):
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", *options]
    return subprocess.run(
        [*command, report.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )


def test_the_first_page_shows_question_answer_and_picture(finished, tmp_path):
    shown = browse(finished.root / "report.html", tmp_path, "--dump-dom", "--enable-logging=stderr")
    article = shown.stdout.partition('<div id="app"')[2]
    assert "Does the workflow work?" in article
    assert "samples/s" in article
    assert "data:image/svg+xml" in article
    assert "Uncaught" not in shown.stderr


def test_it_prints_as_more_than_one_page(finished, tmp_path):
    page = tmp_path / "report.pdf"
    browse(finished.root / "report.html", tmp_path, f"--print-to-pdf={page}")
    assert page.read_bytes().count(b"/Type /Page\n") + page.read_bytes().count(b"/Type /Page ") >= 2


def test_it_fits_a_phone(finished, tmp_path):
    """Wide tables scroll in boxes of their own: the page itself is no wider than the screen."""
    report = tmp_path / "phone.html"
    probe = (
        "<script>setTimeout(() => { const wide = [...document.querySelectorAll('#app, #app > div')]"
        ".some(e => e.scrollWidth > window.innerWidth + 1); document.title = wide ? 'WIDE' : 'FITS'"
        " }, 3000)</script></body>"
    )
    text = (finished.root / "report.html").read_text()
    report.write_text(text[::-1].replace("</body>"[::-1], probe[::-1], 1)[::-1])
    shown = browse(report, tmp_path, "--window-size=390,844", "--dump-dom")
    assert "<title>FITS</title>" in shown.stdout
