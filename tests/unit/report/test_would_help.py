"""The table of what would help: gains, predictions by day, and their error."""

import json

import pytest
from report_samples import WOULD_HELP, make_project, table, write_results

from feedrate.config.errors import ConfigError
from feedrate.report.rows import Inputs
from feedrate.report.tables.would_help import NONE


@pytest.fixture
def page_of(tmp_path):
    """Makes the page from changes to the sample."""

    def make(**changes):
        project = make_project()
        files = write_results(tmp_path, project)
        (file,) = (file for file in files if file.name == "would_help.json")
        file.write_text(json.dumps(WOULD_HELP | changes))
        return table(project, Inputs(files), "would_help")

    return make


def test_each_cell_has_a_sentence_with_its_gains(page_of):
    assert "CPU, workers = 0, decode = host</a>: halving decode gains 31% (27% to 35%)" in page_of()


def test_each_day_has_the_median_error_of_the_predictions_that_count(page_of):
    page = page_of()
    # 15.0 against 14.1 and 14.3; the late one, 15.0 against 12.6, does not count.
    assert "2026-11-21: 3 predictions, 2 with a result (median error 5.6%); 1 made after" in page
    assert "2026-11-22: 1 prediction, 0 with a result." in page
    assert "4 predictions, 2 with a result (median error 5.6%)" in page


def test_a_late_prediction_has_no_error(page_of):
    page = page_of()
    assert page.count("does not count") == 3
    assert "+19.0%" not in page
    assert "+6.4%" in page


def test_a_broken_chain_is_one_sentence_and_no_prediction_is_shown(page_of):
    page = page_of(fault="ledger.jsonl, line 3, was changed after it was written.")
    assert "line 3, was changed after it was written" in page
    assert "loader.workers" not in page


def test_a_study_without_predictions_says_so(page_of):
    page = page_of(gains=[], outcomes=[])
    assert NONE in page
    assert "<table" not in page, "a table of headings says nothing"


def test_a_damaged_file_is_one_sentence(page_of):
    with pytest.raises(ConfigError, match=r"would_help\.json"):
        page_of(outcomes=[{"measured": 1}])
