"""YAML as we read it: version 1.2's plain values, keys as text, no key twice."""

import re

import pytest
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


BAD = ["1" * 5000, "!!int abc", "!!int ''", "!!bool abc", "!!timestamp abc", "[" * 3_000]


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
