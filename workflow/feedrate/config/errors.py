"""Configuration errors in words: the file, the key, the value and what is allowed.

The libraries that explain an error are imported late, since a valid configuration needs none.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

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
_TYPES = {
    "object": "keys with values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_RULES = {
    "minimum": "the smallest allowed is {}",
    "maximum": "the largest allowed is {}",
    "exclusiveMinimum": "it must be above {}",
    "exclusiveMaximum": "it must be below {}",
    **dict.fromkeys(("minLength", "minItems", "minProperties"), "it must not be empty"),
    # Only names have a pattern.
    "pattern": "it may have letters, digits and _ . + - and begins with a letter or digit",
}


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
        """Whether `value` is of the type `kind`; adds all its errors if not."""
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            errors = _validator()(msgspec.json.schema(kind)).iter_errors(value)
            faults = [fault for one in errors for fault in _faults(one)]
            lines = {_line(self.origin, _dotted(key, path), text) for path, text in faults}
            # msgspec's own message for an error that the schema does not show
            self.extend(sorted(lines) or [_line(self.origin, key, str(error))])
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


@cache
def _validator() -> Any:
    """A JSON-schema validator that, like msgspec, does not accept 2.0 as an integer."""
    import jsonschema

    draft = jsonschema.Draft202012Validator
    checker = draft.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return jsonschema.validators.extend(draft, type_checker=checker)


def _faults(error: Any) -> Iterator[Fault]:
    """The faults behind one error of the validator."""
    path, value, rule = tuple(error.absolute_path), error.instance, error.validator
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        for name in value:
            if name not in known:
                yield (*path, name), f"unknown key; {_choice(name, known, 'allowed')}"
    elif rule == "required":
        for name in error.validator_value:
            if name not in value:
                yield (*path, name), "missing, but required"
    elif rule == "pattern" and "propertyNames" in error.absolute_schema_path:
        yield path, f"the key {value!r} is not allowed; {_allowed(error)}"
    elif rule == "anyOf" and "discriminator" in error.schema and isinstance(value, dict):
        yield from _of_tagged(error, error.schema["discriminator"])
    elif rule == "anyOf":
        yield from _of_alternatives(error)
    else:
        yield path, f"{_show(value)} is not allowed; {_allowed(error)}"


def _of_tagged(error: Any, tags: Any) -> Iterator[Fault]:
    """Faults of a value whose key `source` names its type."""
    place, names = (*error.absolute_path, tags["propertyName"]), list(tags["mapping"])
    tag = error.instance.get(tags["propertyName"])
    if tag is None:
        yield place, f"missing, but required; allowed: {', '.join(names)}"
    elif tag not in names:
        yield place, not_one_of(tag, names)
    else:
        for inner in error.context:
            if inner.schema_path[0] == names.index(tag):
                yield from _faults(inner)


def _of_alternatives(error: Any) -> Iterator[Fault]:
    """Faults of a value that fits none of several types: those as the type that was meant."""
    path, value = tuple(error.absolute_path), error.instance
    words_only = all(e.validator == "enum" or e.validator_value == "null" for e in error.context)
    plain = ("type",) if words_only else ("type", "enum")
    meant = [e for e in error.context if e.validator not in plain or e.path]
    for inner in meant:
        yield from _faults(inner)
    if not meant:
        yield path, f"{_show(value)} is not allowed; {_expected(error.context, value)}"


def _allowed(error: Any) -> str:
    """The values that the violated rule allows, in words."""
    rule, bound = error.validator, error.validator_value
    if rule == "enum":
        return _choice(error.instance, bound, "allowed")
    if rule == "type":
        return _expected([error], error.instance)
    return _RULES[rule].format(bound) if rule in _RULES else str(error.message)


def _choice(value: Any, allowed: Iterable[Any], what: str) -> str:
    import difflib

    names = list(dict.fromkeys(_plain(name) for name in allowed))
    close = [name for name in names if name.endswith(f".{value}")]
    if isinstance(value, str):
        close += difflib.get_close_matches(value, names, 1, _ALIKE)
    meant = f"did you mean {close[0]}? " if close else ""
    listed = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    return f"{meant}{what}: {listed or 'none'}"


def _expected(errors: Iterable[Any], value: Any) -> str:
    """The types that violated rules `type` allow, in words; `number` includes `integer`."""
    types: list[str] = []
    for error in errors:
        allowed = error.validator_value
        types += allowed if isinstance(allowed, list) else [allowed]
    names = [name for name in types if name != "integer" or "number" not in types]
    *most, last = dict.fromkeys(_TYPES.get(name, name) for name in names)
    hint = ""
    if isinstance(value, str | int | float) and "array" in types:
        hint = f", as [{value}]"
    elif isinstance(value, str | int | float) and last == "text":
        hint = f", as '{value}'"
    return f"expected {', '.join(most)}{' or ' if most else ''}{last}{hint}"


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
