"""Code that starts and watches jobs is apart from measured code: editing it retrains nothing."""

import pytest

from feedrate.flow.digests import CODE, PACKAGE, DigestCache, source_digest

PARENT = ("supervisor", "processes", "run_lock", "outcome", "earlier")


def test_the_parent_side_is_all_there():
    assert [name for name in PARENT if not (PACKAGE / f"jobs/{name}.py").is_file()] == []


@pytest.mark.parametrize("kind", ["measured", "inferred", "stored"])
def test_what_runs_in_a_job_imports_nothing_of_the_parent_side(kind, tmp_path):
    cache = DigestCache(tmp_path / "cache.json")
    source_digest(cache, CODE[kind])
    seen = set(cache._known)
    assert any("/jobs/" in file for file in seen)
    assert [name for name in PARENT if str(PACKAGE / f"jobs/{name}.py") in seen] == []
