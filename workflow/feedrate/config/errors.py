"""Configuration errors in words: the file, the key, the value and what is allowed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from feedrate.core import paths
from feedrate.core.errors import ExpectedError

Origin = str | Callable[[str], str]
"""The name of a file, or a function that returns the name of the file a key comes from."""

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


class Problems(list[str]):
    """The errors of one file, a line each. Each check adds an error unless it passes."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self.origin = origin

    def add(self, key: str, text: str) -> None:
        """Add an error of the value at `key`."""
        file = self.origin if isinstance(self.origin, str) else self.origin(key)
        self.append(": ".join(filter(None, (file, key, text))))

    def check_known(self, key: str, value: Any, allowed: Iterable[Any], noun: str) -> bool:
        """Whether `value` is one of `allowed`, which `noun` names."""
        names = list(allowed)
        is_known = any(value == name and type(value) is type(name) for name in names)
        if not is_known:
            self.add(key, not_one_of(value, names, noun))
        return is_known

    def check_type(self, key: str, value: Any, kind: Any) -> bool:
        """Whether `value` is of the type `kind`; adds its first error if not."""
        fault = _fault(value, kind)
        if fault:
            self.add(f"{key}{fault[0]}".removeprefix("."), fault[1])
        return not fault

    def check_path(self, key: str, value: str | None) -> None:
        """A file can have the path `value`."""
        if fault := paths.fault(value or ""):
            self.add(key, f"{_show(value)} is not allowed; {fault}")

    def check_names(self, key: str, values: Sequence[Any], names: Iterable[Any], noun: str) -> None:
        """Each item of the list at `key` is known, and occurs once."""
        allowed = list(names)
        for place, value in numbered(f"{key}[{{}}]", values):
            self.check_known(place, value, allowed, noun)
        self.check_unique(numbered(f"{key}[{{}}]", values))

    def check_unique(self, values: Iterable[tuple[str, Any]]) -> None:
        """Each (key, value) has another value."""
        values_before: set[Any] = set()
        for key, value in values:
            if value in values_before:
                self.add(key, f"{value!r} occurs twice")
            values_before.add(value)


def numbered(key: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each value with its key: `key` with the value's number in place of {}."""
    return ((key.format(number), value) for number, value in enumerate(values))


def not_one_of(value: Any, allowed: Iterable[Any], noun: str = "allowed") -> str:
    """The error that `value` is not one of `allowed`, with the name that was probably meant."""
    return f"{_show(value)} is not allowed; {_choice(value, allowed, noun)}"


def _fault(value: Any, kind: Any) -> tuple[str, str] | None:
    """The place and the words of the first part of `value` that does not fit the type `kind`:
    msgspec does not name the keys of a mapping, nor the names that it would accept."""
    try:
        msgspec.convert(value, kind)
        return None
    except msgspec.ValidationError as error:
        text = str(error)
    kinds = _alternatives(kind)
    if isinstance(value, dict):
        structs = [k for k in kinds if hasattr(k, "__struct_config__")]
        if structs:
            return _struct_fault(value, structs)
        for key_kind, part_kind in (get_args(k) for k in kinds if get_origin(k) is dict):
            for key, part in value.items():
                if _fault(key, key_kind):
                    rule = (
                        "it may have letters, digits and _ . + - and begins with a letter or digit"
                    )
                    return "", f"the key {key!r} is not allowed; {rule}"
                if fault := _fault(part, part_kind):
                    return f".{key}{fault[0]}", fault[1]
    if isinstance(value, list):
        for part_kind in (get_args(k)[0] for k in kinds if get_origin(k) in (list, tuple)):
            for number, part in enumerate(value):
                if fault := _fault(part, part_kind):
                    return f"[{number}]{fault[0]}", fault[1]
    if text.startswith("Invalid enum value"):
        # Where a value of another type is allowed too, `int` or `null`.
        names = [get_args(k) or ("null" if k is NoneType else k.__name__,) for k in kinds]
        return "", not_one_of(value, chain.from_iterable(names))
    # "Expected `array`, got `str`", "Expected `int` >= 1 - at `$.key`"
    expected = text.partition(" - at `")[0].partition(", got")[0].replace("`", "").replace(".0", "")
    expected = expected.replace("array", "list").replace("object", "keys with values")
    return "", f"{_show(value)} is not allowed; {expected[0].lower()}{expected[1:]}"


def _struct_fault(value: dict[str, Any], structs: list[Any]) -> tuple[str, str]:
    """The first fault of a mapping that fits none of `structs`, which a tag tells apart."""
    names = []
    struct = structs[0]
    tag_field = struct.__struct_config__.tag_field
    if tag_field:
        tags = [k.__struct_config__.tag for k in structs]
        if tag_field not in value:
            return f".{tag_field}", f"missing, but required; allowed: {', '.join(tags)}"
        if value[tag_field] not in tags:
            return f".{tag_field}", not_one_of(value[tag_field], tags)
        struct = structs[tags.index(value[tag_field])]
        names.append(tag_field)
    fields = msgspec.structs.fields(struct)
    for field in fields:
        if field.name in value and (fault := _fault(value[field.name], field.type)):
            return f".{field.name}{fault[0]}", fault[1]
    names += [field.name for field in fields]
    for key in value:
        if key not in names:
            return f".{key}", f"unknown key; {_choice(key, names, 'allowed')}"
    missing = next(field.name for field in fields if field.required and field.name not in value)
    return f".{missing}", "missing, but required"


def _alternatives(kind: Any) -> list[Any]:
    """The types that a union or an annotated type stands for."""
    if get_origin(kind) is Annotated:
        return _alternatives(kind.__origin__)
    if get_origin(kind) in (Union, UnionType):
        return [alternative for part in get_args(kind) for alternative in _alternatives(part)]
    return [kind]


def _choice(value: Any, allowed: Iterable[Any], noun: str) -> str:
    import difflib

    names = list(dict.fromkeys(map(_plain, allowed)))
    close = [name for name in names if name.endswith(f".{value}")]
    if isinstance(value, str):
        close += difflib.get_close_matches(value, names, 1, _ALIKE)
    question = f"did you mean {close[0]}? " if close else ""
    some_names = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    return f"{question}{noun}: {some_names or 'none'}"


def _show(value: Any) -> str:
    """A value as YAML writes it, text in quotes, cut where it is long."""
    text = repr(value) if isinstance(value, str) else _plain(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
