"""What a certificate concludes from measurements, and what it says."""

import msgspec
import pytest

from feed_builder import CACHE, HOST, PACE, answer, certificate, feeding
from feedrate_loaders.certificate import NOT_COVERED, judge, page


def test_the_rate_limit_gives_fractions_and_the_runs_whole_numbers():
    (found,) = judge(answer(HOST), PACE)
    assert found.drained == pytest.approx(230 / 67.5)
    assert found.feeds == pytest.approx(4 * 0.77 / 0.9)
    assert (found.fed, found.limited_by) == (3, "cores")
    assert not found.at_least
    assert found.cores == pytest.approx(2 / (4 * 0.77 / 0.9))
    assert found.disk_mb_per_s == pytest.approx(67.5 * 0.1)
    assert found.memory_gb_per_s == pytest.approx(67.5 * (0.1 + 4 + 0.6) * 1e-3)


def test_the_fraction_is_no_less_than_what_was_fed():
    unfair = msgspec.structs.replace(HOST, runs=[*HOST.runs[:1], feeding(4, 0.5, 280.0)])
    assert next(judge(answer(unfair), PACE)).feeds == 3.0, "one starves, the others get more"
    all_fed = msgspec.structs.replace(HOST, runs=HOST.runs[:1])
    assert next(judge(answer(all_fed), PACE)).feeds == pytest.approx(230 / 67.5)
    none = msgspec.structs.replace(HOST, runs=[feeding(1, 0.45, 40.0)])
    assert next(judge(answer(none), PACE)).feeds == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("limit", "copy_bytes_per_s", "word"),
    [
        ({}, 1e10, "cores"),
        ({"cores_busy": 0.5, "io_waited": 0.3}, 1e10, "disk"),
        ({"cores_busy": 0.5}, 2e9, "memory bandwidth"),
        ({"cores_busy": 0.5}, 1e10, "unknown"),
    ],
)
def test_what_limits_a_loader(limit, copy_bytes_per_s, word):
    fed = msgspec.structs.replace(HOST, limit=feeding(1, 0.0, 230.0, **limit))
    (found,) = judge(answer(fed, copy_bytes_per_s=copy_bytes_per_s), PACE)
    assert found.limited_by == word


def test_a_page_says_how_many_are_fed_and_what_more_need():
    text = page(certificate(HOST, CACHE))
    sentence = "This host feeds 3.4 H100s (emulated) of bridgetower-large at 90% utilisation with "
    assert f"{sentence}`host`; 8 need 3 more cores." in text
    assert "3 busy 97.0%, 4 busy 77.0%" in text
    assert "No certificate for `cache`: it does not decode." in text
    assert all(one in text for one in NOT_COVERED)
    assert "Disturbed" not in text
    assert "differ" not in text


def test_a_page_names_no_number_that_was_too_many():
    nearly = msgspec.structs.replace(HOST, runs=[HOST.runs[0], feeding(4, 0.895, 240.0)])
    (found,) = judge(answer(nearly), PACE)
    assert found.feeds == pytest.approx(3.98, abs=0.01)
    assert "This host feeds 3.9 H100s" in page(certificate(nearly))
    whole = msgspec.structs.replace(HOST, runs=[HOST.runs[0], feeding(4, 0.72, 240.0)])
    assert "This host feeds 3.2 H100s" in page(certificate(whole))


def test_a_page_says_at_least_where_no_number_was_too_many():
    """The search ends at 64 accelerators, whatever the host could feed."""
    limit = feeding(60, 0.0, 6750.0)
    most = msgspec.structs.replace(HOST, limit=limit, runs=[feeding(64, 0.99, 4800.0)])
    (found,) = judge(answer(most), PACE)
    assert (found.at_least, found.fed, found.feeds) == (True, 64, pytest.approx(100.0))
    text = page(certificate(most))
    assert "This host feeds at least 64 H100s (emulated)" in text
    assert "Predicted: 100.0." in text
    assert "differ by more than one" not in text
    few = msgspec.structs.replace(most, limit=feeding(60, 0.0, 4000.0))
    assert next(judge(answer(few), PACE)).feeds == 64.0, "more were fed than a drain predicted"


def test_a_page_does_not_promise_that_cores_help_where_they_are_not_the_limit():
    limit = feeding(1, 0.0, 230.0, cores_busy=0.5, io_waited=0.5, cpu_s=1 / 230)
    text = page(certificate(msgspec.structs.replace(HOST, limit=limit)))
    assert "its limit is disk, and more cores may not help" in text


def test_a_page_tells_disturbances_and_contradictions():
    disturbed = feeding(3, 0.97, 218.0, cpu_s=1 / 218)
    text = page(certificate(msgspec.structs.replace(HOST, runs=[disturbed])))
    assert "other work took up to 50% of the cores" in text
    none = msgspec.structs.replace(HOST, runs=[feeding(1, 0.5, 40.0)])
    assert "differ by more than one" in page(certificate(none))


def test_a_whole_job_that_is_fed_needs_nothing():
    pace = msgspec.structs.replace(PACE, accelerators=3)
    assert "90% utilisation with `host`." in page(certificate(HOST, pace=pace))
