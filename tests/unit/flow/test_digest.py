import ast
import os

import pytest

from feedrate.flow import digests
from feedrate.flow.digests import (
    CODE,
    Code,
    DigestCache,
    digest_code,
    imported_modules,
    source_digest,
)

BASE = 'def f(x):\n    """Add."""\n    return x + 1\n'


@pytest.mark.parametrize(
    "cosmetic",
    [
        "# A remark.\n" + BASE,
        BASE.replace("Add.", "Add one to x, which is a number."),
        '"""A module."""\n\n' + BASE,
        BASE.replace("x + 1", "(x\n            + 1)  # more"),
    ],
)
def test_cosmetic_edits_keep_the_digest(cosmetic):
    assert digest_code(ast.parse(cosmetic)) == digest_code(ast.parse(BASE))


@pytest.mark.parametrize("change", ["x + 2", "x - 1", '"x" + 1'])
def test_other_edits_change_the_digest(change):
    assert digest_code(ast.parse(BASE.replace("x + 1", change))) != digest_code(ast.parse(BASE))


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


def test_an_empty_part_of_a_text_keeps_the_digest():
    """Python 3.12.1 ends some formats with one."""
    before, tree = digest_code(ast.parse(RICH)), ast.parse(RICH)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
    assert digest_code(tree) == before


@pytest.mark.parametrize("change", [("None:", "1:"), ("**k, ", ""), (">4", ">5"), ("*, ", "")])
def test_none_and_lists_in_code_count(change):
    assert digest_code(ast.parse(RICH.replace(*change))) != digest_code(ast.parse(RICH))


def test_imports_are_found_wherever_they_stand():
    source = (
        "import os, feedrate.core.files\n"
        "from feedrate.config import plan\n"
        "def f():\n    from feedrate.jobs.meter import Meter\n"
    )
    assert imported_modules(ast.parse(source)) == [
        "feedrate.config",
        "feedrate.config.plan",
        "feedrate.core.files",
        "feedrate.jobs.meter",
        "feedrate.jobs.meter.Meter",
    ]


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


def test_every_kind_of_job_has_its_code():
    for name, code in CODE.items():
        for program in code.programs:
            assert list(digests.PACKAGE.glob(program)), f"{name}: {program}"


def seen_by(code, *programs, tmp_path):
    cache = DigestCache(tmp_path / "cache.json")
    source_digest(cache, code._replace(programs=code.programs + programs))
    return {os.path.relpath(path, digests.PACKAGE) for path in cache._known}


def test_measured_code_is_the_training_and_nothing_of_the_report(tmp_path):
    seen = seen_by(CODE["measured"], tmp_path=tmp_path)
    assert {"jobs/meter.py", "loading/dataset.py", "devices/launch.py"} <= seen
    assert "devices/cpu_time.py" in seen, "what is measured counts, too"
    assert not {p for p in seen if p.startswith(("report/", "results/"))}


@pytest.mark.parametrize("code", ["measured", "inferred", "stored"])
def test_the_models_that_a_job_builds_count_and_a_count_of_memory_does_not(tmp_path, code):
    """`fits` and the search for a batch count it; no job does."""
    seen = seen_by(CODE[code], "models/builders/vit.py", tmp_path=tmp_path)
    assert {"models/build.py", "models/layers.py", "models/flops.py"} <= seen
    assert "models/memory.py" not in seen


PLUGIN = ("devices/kinds/", "devices/launchers/", "models/builders/", "loading/decoders/")


@pytest.mark.parametrize("code", ["measured", "inferred"])
@pytest.mark.parametrize(
    ("run", "own"),
    [
        (
            ("cpu", "single", "vit", "host"),
            {
                *("devices/kinds/cpu.py", "devices/launchers/single.py", "models/builders/vit.py"),
                *("loading/decoders/host.py", "loading/decoders/reference.py"),
            },
        ),
        (
            ("hpu", "mpirun", "bridgetower", "device"),
            {
                *("devices/kinds/hpu.py", "devices/kinds/_habana.py"),
                *("devices/launchers/mpirun.py", "models/builders/bridgetower.py"),
                *("loading/decoders/gaudi.py", "loading/decoders/_gaudi_pipe.py"),
                "loading/decoders/reference.py",
            },
        ),
    ],
)
def test_a_runs_code_holds_its_own_plugins_only(tmp_path, code, run, own):
    seen = seen_by(CODE[code], *digests.plugins_of(*run), tmp_path=tmp_path)
    found = {file for file in seen if file.startswith(PLUGIN) and not file.endswith("__init__.py")}
    imported_by_all = {"loading/decoders/cache.py"}  # the dataset's type of a store
    assert found - imported_by_all == own


@pytest.mark.parametrize("code", ["measured", "inferred", "stored"])
def test_an_edit_of_the_checks_of_a_machine_repeats_no_run(tmp_path, code):
    read = []

    class Noting(digests.DigestCache):
        def digest(self, path, compute):
            read.append(path)
            return super().digest(path, compute)

    digests.source_digest(Noting(tmp_path / "cache.json"), digests.CODE[code])
    assert read
    assert not [path for path in read if path.is_relative_to(digests.PACKAGE / "devices/doctor")]
