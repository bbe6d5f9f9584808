"""Reading configuration: YAML in, checked types out, and one clear error for what is wrong."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from feedrate.config.base import Level
from feedrate.core.errors import ExpectedError

try:
    from yaml import CSafeLoader as SafeLoader  # ten times faster, where PyYAML was built with it
except ImportError:
    from yaml import SafeLoader

T = TypeVar("T")

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_LISTED = 10


class ConfigError(ExpectedError):
    """A wrong configuration, told in one message: file, key, value and what is allowed."""


class _Loader(SafeLoader):
    """YAML as its version 1.2 reads plain values: `on`, `12:30` and 2023-08-29 stay text, 1e-5 is
    a number. Keys are always text, and a key that stands twice is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """The values of a mapping by the text of their keys."""
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _yaml_error("a key must be a word", key)
            if key.value in values:
                raise _yaml_error(f"the key {key.value!r} stands twice", key)
            values[key.value] = self.construct_object(value, deep=deep)
        return values


def _yaml_error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


for _tag, _pattern, _first in (
    ("null", re.compile(r"(~|null|Null|NULL)?$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(f"({_INTEGER.pattern})$"), list("-+0123456789")),
    ("float", re.compile(f"({_FLOAT.pattern})$"), list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)


def read_yaml(path: Path, origin: str = "") -> Any:
    """Parse a YAML file. Raises ConfigError where it cannot be read, is empty or is not YAML."""
    origin = origin or str(path)
    text = read_text(path, origin)
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}{_yaml_fault(error, text)}") from None
    if value is None:
        raise ConfigError(f"{origin}: the file is empty")
    return value


def read_text(path: Path, origin: str) -> str:
    """A file's text as UTF-8. Raises ConfigError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{origin}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{origin}: not UTF-8 text (byte {error.start + 1})") from None


def parse_level(text: str) -> Level:
    """Read a plain value as YAML does: true or false, an integer, a float, else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def load(path: Path, kind: type[T], origin: str = "") -> T:
    """Read `path` as a value of `kind`; `origin` is the file's name in messages.

    Raises ConfigError for anything that does not fit.
    """
    return convert(read_yaml(path, origin), kind, origin or str(path))


def convert(value: Any, kind: type[T], origin: str) -> T:
    """Check `value` against `kind`; `origin` (a file's name) opens the error message."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise all_of(_explain(value, kind, origin, "", error)) from None


def convert_text(text: str, kind: type[T], origin: str) -> T:
    """Check a mapping that came as text: a dict param, as Snakemake prints it (Python literal)."""
    import ast  # only jobs need it, and planning is to stay light

    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ConfigError(f"{origin}: {text[:80]!r} is not a mapping") from None
    return convert(value, kind, origin)


def problems(value: Any, kind: Any, origin: str, key: str = "") -> list[str]:
    """All that is wrong with `value` as a `kind`, a line each; `key` is its place in `origin`."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _explain(value, kind, origin, key, error)
    return []


def all_of(lines: Sequence[str]) -> ConfigError:
    """One error that lists these problems, the first ten of them in full."""
    more = [f"… and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return ConfigError("\n".join([*lines[:_LISTED], *more]))


def _explain(
    value: Any, kind: Any, origin: str, key: str, error: msgspec.ValidationError
) -> list[str]:
    from feedrate.config.explain import explain  # heavy, and only needed after a failure

    return explain(value, kind, origin, key, str(error))


def _yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Line and reason of a YAML error."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *\t", line):
            return f", line {number}: a tab; YAML is indented with spaces"
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return f"{where}: {reason}"


# What a check found wrong in one file of the configuration, told line by line.


class Findings(list[str]):
    """The wrong things found in one file."""

    def __init__(self, origin: str) -> None:
        super().__init__()
        self.origin = origin

    def say(self, key: str, text: str) -> None:
        """Note that the value at `key` is wrong."""
        self.append(f"{self.origin}: {key}: {text}")

    def known(self, key: str, value: Any, allowed: Iterable[Any], what: str) -> bool:
        """Note `value` unless it is one of `allowed`, which `what` names."""
        names = list(allowed)
        if any(value == name and type(value) is type(name) for name in names):
            return True
        from feedrate.config.explain import not_one_of  # heavy, and only needed after a failure

        self.say(key, not_one_of(value, names, what))
        return False

    def unique(self, values: Iterable[tuple[str, Any]]) -> None:
        """Note each value, given with its key, that stands there twice."""
        seen: set[Any] = set()
        for key, value in values:
            if value in seen:
                self.say(key, f"{value!r} stands there already")
            seen.add(value)


def numbered(key: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each value with its key, which holds {} in place of the number."""
    return ((key.format(number), value) for number, value in enumerate(values))
