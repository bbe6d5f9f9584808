"""Configuration errors in words: the file, the key, the value and what is allowed.

The libraries that explain an error are imported late, since a valid configuration needs none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from feedrate.core import paths
from feedrate.core.errors import ExpectedError

Origin = str | Callable[[str], str]
"""The name of a file, or a function that returns the name of the file a key comes from."""
Fault = tuple[tuple[Any, ...], str]
"""A path in a value, and the error there."""

_LISTED, _SHOWN, _NAMES = 10, 60, 30
"""Limits of a message: errors listed, characters of a value, allowed names."""
_ALIKE = 0.7
"""Least similarity (difflib's ratio) of a suggested name; `gpu` does not suggest `hpu`."""


class ConfigError(ExpectedError):
    """A wrong configuration; the message names file, key, value and what is allowed."""


def raise_all(errors: Sequence[str]) -> None:
    """Raise one ConfigError that lists these errors, the first ten in full, if there are any."""
    if errors:
        more = [f"… and {len(errors) - _LISTED} more"] if len(errors) > _LISTED else []
        raise ConfigError("\n".join([*errors[:_LISTED], *more]))


class Findings(list[str]):
    """The errors found in one file, a line each."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self.origin = origin

    def say(self, key: str, text: str) -> None:
        """Add an error of the value at `key`."""
        self.append(_line(self.origin, key, text))

    def known(self, key: str, value: Any, allowed: Iterable[Any], what: str) -> bool:
        """Whether `value` is one of `allowed`, which `what` describes; adds an error if not."""
        names = list(allowed)
        found = any(value == name and type(value) is type(name) for name in names)
        if not found:
            self.say(key, not_one_of(value, names, what))
        return found

    def fits(self, key: str, value: Any, kind: Any) -> bool:
        """Whether `value` is of the type `kind`; adds its first error if not."""
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            path, text = _explain(value, kind, str(error))
            self.say(_dotted(key, path), text)
            return False
        return True

    def path(self, key: str, value: str | None) -> None:
        """Add an error if no file can have the path `value`."""
        if why := paths.fault(value or ""):
            self.say(key, f"{_show(value)} is not allowed; {why}")

    def names(self, key: str, values: Iterable[Any], allowed: Iterable[Any], what: str) -> None:
        """Add an error for each item of the list at `key` that is not `known` or occurs twice."""
        items, names = list(numbered(f"{key}[{{}}]", values)), list(allowed)
        for place, value in items:
            self.known(place, value, names, what)
        self.unique(items)

    def unique(self, values: Iterable[tuple[str, Any]]) -> None:
        """Add an error for each (key, value) whose value occurred before."""
        seen: set[Any] = set()
        for key, value in values:
            if value in seen:
                self.say(key, f"{value!r} occurs twice")
            seen.add(value)


def numbered(key: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each value with its key: `key` with the value's number in place of {}."""
    return ((key.format(number), value) for number, value in enumerate(values))


def not_one_of(value: Any, allowed: Iterable[Any], what: str = "allowed") -> str:
    """The error that `value` is not one of `allowed`, with the name that was probably meant."""
    return f"{_show(value)} is not allowed; {_choice(value, allowed, what)}"


def _explain(value: Any, kind: Any, error: str) -> Fault:
    """The place and the words of msgspec's error for `value`. msgspec does not name the keys of a
    mapping, nor the names that it would accept."""
    text, _, place = error.partition(" - at `")
    path: list[Any] = []
    for name, number in re.findall(r"\.(\w+)|\[(\d+|\.{3})\]", place):
        if number == "...":
            path.append(_wrong_key(value, path, kind, error))
        else:
            path.append(int(number) if number else name)
    if place.startswith("key`"):
        key = _wrong_key(value, path, kind, error)
        rule = "it may have letters, digits and _ . + - and begins with a letter or digit"
        return tuple(path), f"the key {key!r} is not allowed; {rule}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        tags = _tags(_types(value, kind, path), missing[1])
        allowed = f"; allowed: {', '.join(tags)}" if tags else ""
        return (*path, missing[1]), f"missing, but required{allowed}"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        structs = _structs(_types(value, kind, path), _at(value, path))
        known = [t.tag_field for t in structs if t.tag_field]
        known += [field.encode_name for t in structs for field in t.fields]
        return (*path, unknown[1]), f"unknown key; {_choice(unknown[1], known, 'allowed')}"
    wrong = _at(value, path)
    if text.startswith("Invalid value"):
        return tuple(path), not_one_of(wrong, _tags(_types(value, kind, path[:-1]), path[-1]))
    if text.startswith("Invalid enum value"):
        types = _types(value, kind, path)
        literals = [t for t in types if isinstance(t, inspect.LiteralType)]
        names = [name for t in literals for name in t.values]
        # `int` or `null`, where a value of another type is allowed too
        names += [type(t).__name__[:-4].lower() for t in types if t not in literals]
        return tuple(path), not_one_of(wrong, names)
    # "Expected `array`, got `str`", "Expected `int` >= 1"
    expected = text.partition(", got")[0].replace("`", "").replace(".0", "")
    expected = expected.replace("array", "list").replace("object", "keys with values")
    return tuple(path), f"{_show(wrong)} is not allowed; {expected[0].lower()}{expected[1:]}"


def _at(value: Any, path: Iterable[Any]) -> Any:
    for part in path:
        value = value[part]
    return value


def _wrong_key(value: Any, path: list[Any], kind: Any, error: str) -> Any:
    """The key of the mapping at `path` without which this error would not be."""

    def with_only(part: Any, rest: list[Any], key: Any) -> Any:
        if not rest:
            return {key: part[key]}
        copy = list(part) if isinstance(part, list) else dict(part)
        copy[rest[0]] = with_only(part[rest[0]], rest[1:], key)
        return copy

    for key in _at(value, path):
        try:
            msgspec.convert(with_only(value, path, key), kind)
        except msgspec.ValidationError as other:
            if str(other) == error:
                return key
    raise KeyError(error)


def _types(value: Any, kind: Any, path: Iterable[Any]) -> list[inspect.Type]:
    """The types that the value at `path` may have."""
    types = _alternatives(inspect.type_info(kind))
    for part in path:
        inner = [
            field.type
            for struct in _structs(types, value)
            for field in struct.fields
            if field.encode_name == part
        ]
        inner += [t.value_type for t in types if isinstance(t, inspect.DictType)]
        lists = (inspect.ListType, inspect.VarTupleType)
        inner += [t.item_type for t in types if isinstance(t, lists)]
        types, value = [one for each in inner for one in _alternatives(each)], value[part]
    return types


def _structs(types: Iterable[inspect.Type], value: Any) -> list[inspect.StructType]:
    """The structs among `types` that have the tag of `value`, or no tag."""
    structs = [t for t in types if isinstance(t, inspect.StructType) and isinstance(value, dict)]
    return [t for t in structs if t.tag_field is None or value.get(t.tag_field) == t.tag]


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [one for each in kind.types for one in _alternatives(each)]
    return [kind]


def _tags(types: Iterable[inspect.Type], field: str) -> list[str]:
    """The tags of the types whose key `field` names the type."""
    return [str(t.tag) for t in types if isinstance(t, inspect.StructType) and t.tag_field == field]


def _choice(value: Any, allowed: Iterable[Any], what: str) -> str:
    import difflib

    names = list(dict.fromkeys(_plain(name) for name in allowed))
    close = [name for name in names if name.endswith(f".{value}")]
    if isinstance(value, str):
        close += difflib.get_close_matches(value, names, 1, _ALIKE)
    meant = f"did you mean {close[0]}? " if close else ""
    listed = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    return f"{meant}{what}: {listed or 'none'}"


def _line(origin: Origin, key: str, text: str) -> str:
    file = origin if isinstance(origin, str) else origin(key)
    return ": ".join(part for part in (file, key, text) if part)


def _dotted(key: str, path: Iterable[Any]) -> str:
    """`factors.workers.levels[2]`, or nothing for the whole file."""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return key


def _show(value: Any) -> str:
    """A value as YAML writes it, text in quotes, cut where it is long."""
    text = repr(value) if isinstance(value, str) else _plain(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
