"""Code that starts and watches jobs is apart from measured code: editing it retrains nothing."""

import pytest
from feedrate.flow.digests import CODE, PACKAGE, DigestCache, source_digest

PARENT = [
    *(f"jobs/{name}.py" for name in ("supervisor", "processes", "workplace", "outcome", "tries")),
    "devices/doctor.py",
]


@pytest.mark.parametrize("kind", ["measured", "inferred", "stored"])
def test_what_runs_in_a_job_imports_nothing_of_the_parent_side(kind, tmp_path):
    cache = DigestCache(tmp_path / "cache.json")
    source_digest(cache, CODE[kind])
    seen = set(cache._known)
    assert any("/jobs/" in file for file in seen)
    assert all((PACKAGE / name).is_file() for name in PARENT)
    assert [name for name in PARENT if str(PACKAGE / name) in seen] == []
