"""YAML as we read it: version 1.2's plain values, keys as text, no key twice."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from feedrate.config.errors import ConfigError
from feedrate.config.values import level_text, load, parse_level, read_yaml


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "file.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_yaml(path, "file.yaml")

    return read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("2023-08-29", "2023-08-29"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("010", "010"),
        (".inf", ".inf"),
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        (".5", 0.5),
        ("3.", 3.0),
        ("null", None),
        ("~", None),
        ("'12'", "12"),
    ],
)
def test_plain_values(read, text, value):
    found = read(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


BAD = ["1" * 5000, "!!int abc", "!!int ''", "!!bool abc", "!!timestamp abc", "[" * 20_000]


@pytest.mark.parametrize("text", BAD)
def test_a_value_that_no_parser_reads_is_told(read, text):
    with pytest.raises(ConfigError, match=r"^file\.yaml"):
        read(f"a: {text}")


def test_keys_are_text(read):
    assert read("{16: a, true: b, 1.5: c, on: d}") == {
        "16": "a",
        "true": "b",
        "1.5": "c",
        "on": "d",
    }


def test_anchors_still_work(read):
    assert read("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "file.yaml, line 3: the key 'a' occurs twice"),
        ("x:\n  a: 1\n  a: 1", "file.yaml, line 3: the key 'a' occurs twice"),
        ("{1: a, '1': b}", "file.yaml, line 1: the key '1' occurs twice"),
        ("a:\n\tb: 1", "file.yaml, line 2: a tab; YAML is indented with spaces"),
        ("a:\n  \tb: [", "file.yaml, line 2: a tab; YAML is indented with spaces"),
        ("", "file.yaml: the file is empty"),
        ("# only a comment\n", "file.yaml: the file is empty"),
        ("? [1, 2]\n: b", "file.yaml, line 1: a key must be a word"),
    ],
)
def test_errors(read, text, message):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    ["a: [1", "a: b: c", "--- a\n--- b", "a: !!python/object:os.x {}", b"a: \x01", b"a: \xff"],
)
def test_broken_files_name_the_file_in_one_line(read, text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert re.fullmatch(r"file\.yaml(, line \d+)?: [^\n]+", str(caught.value))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        read_yaml(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="is a directory"):
        read_yaml(tmp_path)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    (tmp_path / "file.yaml").write_text("a: 1", encoding="utf-8-sig")
    assert load(tmp_path / "file.yaml", dict[str, int]) == {"a": 1}


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_level_is_read_as_it_is_written(level):
    again = parse_level(level_text(level))
    assert (again, type(again)) == (level, type(level))


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1))
def test_a_level_in_a_table_is_read_as_in_yaml(tmp_path_factory, text):
    """Claims and CSV files name levels as plain text; it must mean what it means in a study."""
    plain = re.fullmatch(r"[A-Za-z0-9_.+-]+", text) and text.lower() not in (
        "null",
        "true",
        "false",
    )
    if not plain or text.startswith(("---", "...")) or text == "-":
        return
    path = tmp_path_factory.getbasetemp() / "level.yaml"
    path.write_text(f"a: {text}", encoding="utf-8")
    assert read_yaml(path) == {"a": parse_level(text)}


def test_pyyaml_alone_would_differ():
    """Why there is a loader of our own; if this fails it may be of no use any more."""
    assert yaml.safe_load("{a: 1, a: 2}") == {"a": 2}
    assert yaml.safe_load("[on, 1e-5]") == [True, "1e-5"]
