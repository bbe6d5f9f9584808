"""Plug-ins are found by their files, and declarations are read without importing them."""

import sys

import pytest

from feedrate.config.spec import KINDS
from feedrate.core import plugins


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "shapes_for_tests"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "square.py").write_text('import nothing_like_this\nORDER: int = 2\nSIZES = ("a",)\n')
    (folder / "circle.py").write_text("ORDER = 1\nLATER = len('ab')\ndef area(r): return 3 * r\n")
    (folder / "_helper.py").write_text("ORDER = 9\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shapes_for_tests"
    for name in [name for name in sys.modules if name.startswith("shapes_for_tests")]:
        del sys.modules[name]


def test_declarations_are_read_without_importing(package):
    assert plugins.names(package) == ("circle", "square")
    assert plugins.declared(package, "ORDER") == {"circle": 1, "square": 2}
    assert plugins.declared(package, "SIZES") == {"square": ("a",)}
    assert plugins.declared(package, "LATER") == {}


def test_a_plugin_is_imported_by_name_only_when_it_is_known(package):
    assert plugins.load(package, "circle").area(2) == 6
    with pytest.raises(KeyError, match=r"'hexagon'.*circle, square"):
        plugins.load(package, "hexagon")


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """An installed distribution that adds plug-ins to `shapes_for_tests`; one has a known name."""
    package = tmp_path / "others_for_tests/shapes"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "oval.py").write_text("import nothing_like_this\nORDER = 7\n")
    (package / "circle.py").write_text("ORDER = 8\n")
    facts = tmp_path / "others_for_tests-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: others-for-tests\nVersion: 1\n")
    entry = "shapes_for_tests = others_for_tests.shapes"
    (facts / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{entry}\n")
    plugins.additions.cache_clear()
    yield package
    plugins.additions.cache_clear()
    for name in [name for name in sys.modules if name.startswith("others_for_tests")]:
        del sys.modules[name]


def test_another_distribution_adds_plugins_and_replaces_none(package, distribution):
    assert plugins.names(package) == ("circle", "oval", "square")
    assert plugins.declared(package, "ORDER") == {"circle": 1, "oval": 7, "square": 2}
    assert plugins.home(package, "oval") == "others_for_tests.shapes"
    assert plugins.file(package, "oval") == distribution / "oval.py"
    assert plugins.load(package, "circle").area(2) == 6
    with pytest.raises(ModuleNotFoundError, match="nothing_like_this"):
        plugins.load(package, "oval")


CONSTANTS = ("OFFERS", "INSTEAD", "NEEDS", "NOUNS", "PCI_VENDOR", "VISIBLE", "CONTAINER_FLAGS")
CONSTANTS += ("ENVIRONMENT", "RECORDED_VARIABLES", "RECORDED_PACKAGES", "FIRMWARE")
CONSTANTS += ("VENDOR_MODULE", "VENDOR_INTERPRETERS", "VENDOR_PROFILE")


@pytest.mark.parametrize("constant", CONSTANTS)
def test_whatever_a_kind_of_device_declares_can_be_read_without_importing_it(constant):
    """A value that is no literal, such as a tuple with a star, would be as good as missing."""
    modules = {name: plugins.load(KINDS, name) for name in plugins.names(KINDS)}
    assert plugins.declared(KINDS, constant) == {
        name: getattr(module, constant)
        for name, module in modules.items()
        if constant in vars(module)
    }
