"""Reads YAML files strictly and converts their values to types."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from feedrate.config.errors import ConfigError, Findings, Origin, raise_all
from feedrate.config.values import PLAIN_VALUES

try:
    from yaml import CSafeLoader as SafeLoader  # ten times faster, where PyYAML was built with it
except ImportError:
    from yaml import SafeLoader

T = TypeVar("T")


class _Loader(SafeLoader):
    """Reads plain values as YAML 1.2 does: `on`, `12:30` and 2023-08-29 are text, 1e-5 is a number.
    Keys are always text, and a duplicate key is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """The values of a mapping by the text of their keys."""
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _yaml_error("a key must be a word", key)
            if key.value in values:
                raise _yaml_error(f"the key {key.value!r} occurs twice", key)
            values[key.value] = self.construct_object(value, deep=deep)
        return values


def _yaml_error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


for _tag, (_pattern, _first) in PLAIN_VALUES.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def read_yaml(path: Path, origin: str = "") -> Any:
    """Parse a YAML file. Raises ConfigError if it cannot be read, is empty or is not YAML."""
    origin = origin or str(path)
    value = parse_yaml(read_text(path, origin), origin)
    if value is None:
        raise ConfigError(f"{origin}: the file is empty")
    return value


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML; `origin` names its file in messages. Raises ConfigError if it is not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}{_yaml_fault(error, text)}") from None


def read_text(path: Path, origin: str) -> str:
    """A file's text as UTF-8. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{origin}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{origin}: not UTF-8 text (byte {error.start + 1})") from None


def load(path: Path, kind: type[T], origin: str = "") -> T:
    """Read `path` as a value of `kind`; `origin` names the file in messages.

    Raises ConfigError for anything that does not fit.
    """
    return convert(read_yaml(path, origin), kind, origin or str(path))


def convert(value: Any, kind: type[T], origin: Origin) -> T:
    """`value` as a `kind`. Raises ConfigError with all its errors; `origin` names the file."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        found = Findings(origin)
        found.fits("", value, kind)
        raise_all(found)
        raise


def convert_text(text: str, kind: type[T], origin: str) -> T:
    """The same for a mapping given as text: JSON, or a dict param as Snakemake prints it."""
    import ast  # only jobs need it, and planning is to stay light
    import json

    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise ConfigError(f"{origin}: {text[:80]!r} is not a mapping") from None
    return convert(value, kind, origin)


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `changes` overriding it, in mappings within mappings too."""
    both = {
        key: merged(base[key], value)
        if isinstance(value, dict) and isinstance(base.get(key), dict)
        else value
        for key, value in changes.items()
    }
    return {**base, **both}


def _yaml_fault(error: yaml.YAMLError, text: str) -> str:
    """Line and reason of a YAML error."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *\t", line):
            return f", line {number}: a tab; YAML is indented with spaces"
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return f"{where}: {reason}"
