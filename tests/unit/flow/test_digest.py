import ast
import os

import pytest

from feedrate.flow import digests
from feedrate.flow.digests import (
    CODE,
    Code,
    DigestCache,
    digest_code,
    source_digest,
)

BASE = 'def f(x):\n    """Add."""\n    return x + 1\n'


RICH = BASE + "class C(dict):\n    def g(self, *, a=None, **k): return {**k, None: f'{a!r:>4}'}\n"


@pytest.mark.parametrize("version", ["fewer fields", "more fields", "a field that is not set"])
def test_empty_fields_of_another_python_keep_the_digest(monkeypatch, version):
    """Python 3.12 gave functions and classes `type_params`."""
    before, extra = digest_code(ast.parse(RICH)), "of_a_later_version"
    tree = ast.parse(RICH)
    for node in ast.walk(tree):
        if version == "fewer fields":
            node._fields = [n for n in node._fields if getattr(node, n, None) not in (None, [])]
        else:
            node._fields = (extra, *node._fields)
            if version == "more fields":
                setattr(node, extra, [])
    assert digest_code(tree) == before


@pytest.mark.parametrize("change", [("None:", "1:"), ("**k, ", ""), (">4", ">5"), ("*, ", "")])
def test_none_and_lists_in_code_count(change):
    assert digest_code(ast.parse(RICH.replace(*change))) != digest_code(ast.parse(RICH))


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "PACKAGE", tmp_path)
    (tmp_path / "rooms").mkdir()
    (tmp_path / "main.py").write_text("from feedrate.rooms import kitchen\n")
    (tmp_path / "rooms/kitchen.py").write_text("import feedrate.rooms.cellar\n")
    (tmp_path / "rooms/cellar.py").write_text("WINE = 1\n")
    (tmp_path / "rooms/attic.py").write_text("DUST = 1\n")
    return tmp_path


def digest_of(package, *rooms):
    return source_digest(DigestCache(package / "cache.json"), Code(("main.py",), rooms))


def test_only_imported_modules_count(package):
    before = digest_of(package)
    (package / "rooms/attic.py").write_text("DUST = 2\n")
    assert digest_of(package) == before
    (package / "rooms/cellar.py").write_text("WINE = 2\n")
    assert digest_of(package) != before


def test_only_the_named_rooms_count(package):
    before = digest_of(package, "rooms")
    (package / "main.py").write_text("from feedrate.rooms import kitchen\nX = 1\n")
    assert digest_of(package, "rooms") == before
    assert digest_of(package) != before


def test_cache_reads_a_file_again_only_when_it_has_changed(tmp_path):
    file, cache_file = tmp_path / "a.txt", tmp_path / "cache.json"
    file.write_text("one")
    calls = []

    def compute(path):
        calls.append(path)
        return path.read_text()

    cache = DigestCache(cache_file)
    assert [cache.digest(file, compute) for _ in range(2)] == ["one", "one"]
    cache.save()
    assert DigestCache(cache_file).digest(file, compute) == "one"
    assert len(calls) == 1
    file.write_text("other")
    os.utime(file)
    assert DigestCache(cache_file).digest(file, compute) == "other"


def seen_by(code, *programs, tmp_path):
    cache = DigestCache(tmp_path / "cache.json")
    source_digest(cache, code._replace(programs=code.programs + programs))
    return {os.path.relpath(path, digests.PACKAGE) for path in cache._known}


@pytest.mark.parametrize("code", ["measured", "inferred", "stored"])
def test_the_models_that_a_job_builds_count_and_a_count_of_memory_does_not(tmp_path, code):
    """`fits` and the search for a batch count it; no job does."""
    seen = seen_by(CODE[code], "models/builders/vit.py", tmp_path=tmp_path)
    assert {"models/build.py", "models/layers.py", "models/flops.py"} <= seen
    assert "models/memory.py" not in seen
