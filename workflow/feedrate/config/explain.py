"""What is wrong with a value, in words: every fault with its key, and what is allowed there.

Slow and heavy (it imports jsonschema), so only imported once something is wrong.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import msgspec

from feedrate.config.base import NAME_PATTERN

Fault = tuple[tuple[Any, ...], str]
"""A path in the value, and what is wrong there."""

_TYPES = {
    "object": "keys with values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_SHOWN = 60
"""Longer values are cut to so many characters."""
_NAMES = 30
"""Longer lists of what is allowed are cut to so many."""
_ALIKE = 0.7
"""Share of common letters from which a name was probably meant; `gpu` was not meant for `hpu`."""

_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    # JSON Schema takes 2.0 for an integer; the types do not.
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


def explain(value: Any, kind: Any, origin: str, key: str, fallback: str) -> list[str]:
    """All that keeps `value` from being a `kind`, a line each.

    `key` is the dotted path of `value` itself in the file `origin`; `fallback` is what msgspec
    said, for a fault that the schema cannot express.
    """
    schema = msgspec.json.schema(kind)
    errors = _Validator(schema).iter_errors(value)
    faults = [fault for error in errors for fault in _faults(error)]
    faults += _odd_keys(value, ())
    lines = [f"{origin}: {_dotted(key, path)}{text}" for path, text in sorted(faults, key=_place)]
    return list(dict.fromkeys(lines)) or [_from_msgspec(origin, key, fallback)]


def not_one_of(value: Any, allowed: Iterable[Any], what: str = "allowed") -> str:
    """`value` is not among `allowed` (which are `what`): says so, with the nearest match."""
    return f"{_show(value)} is not allowed; {_choice(value, allowed, what)}"


def _choice(value: Any, allowed: Iterable[Any], what: str) -> str:
    names = list(dict.fromkeys(_plain(name) for name in allowed))
    close = [name for name in names if name.endswith(f".{value}")]
    if isinstance(value, str):
        close += difflib.get_close_matches(value, names, 1, _ALIKE)
    meant = f"did you mean {close[0]}? " if close else ""
    listed = ", ".join(names[:_NAMES]) + (", …" if len(names) > _NAMES else "")
    return f"{meant}{what}: {listed or 'none'}"


def _faults(error: Any) -> Iterator[Fault]:
    """The faults behind one error of the validator: path and text."""
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
    elif rule == "anyOf":
        yield from _of_alternatives(error)
    else:
        yield path, f"{_show(value)} is not allowed; {_allowed(error)}"


def _odd_keys(value: Any, path: tuple[Any, ...]) -> Iterator[Fault]:
    """Keys that are no text: who read the file may have taken them for numbers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield path, f"the key {_plain(key)} is not allowed; a key is text, as '{key}'"
            yield from _odd_keys(inner, (*path, key))


def _of_alternatives(error: Any) -> Iterator[Fault]:
    """Faults of a value that fits none of several types: those of the type that was meant."""
    path, value = tuple(error.absolute_path), error.instance
    tags = error.schema.get("discriminator")
    if tags and isinstance(value, dict):
        tag, key = value.get(tags["propertyName"]), tags["propertyName"]
        if tag is None:
            yield (*path, key), f"missing, but required; allowed: {', '.join(tags['mapping'])}"
        elif tag not in tags["mapping"]:
            yield (*path, key), not_one_of(tag, tags["mapping"])
        else:
            chosen = list(tags["mapping"]).index(tag)
            for inner in error.context:
                if inner.schema_path[0] == chosen:
                    yield from _faults(inner)
        return
    meant = [e for e in error.context if e.validator != "type" or len(e.absolute_path) > len(path)]
    if meant:
        for inner in meant:
            yield from _faults(inner)
    else:
        types = [name for e in error.context for name in _as_list(e.validator_value)]
        yield path, f"{_show(value)} is not allowed; {_expected(types, value)}"


def _allowed(error: Any) -> str:
    """What the broken rule allows."""
    rule, bound = error.validator, error.validator_value
    if rule == "enum":
        return _choice(error.instance, bound, "allowed")
    if rule == "type":
        return _expected(_as_list(bound), error.instance)
    if rule == "pattern" and bound == NAME_PATTERN:
        return "it may have letters, digits and _ . + - and begins with a letter or digit"
    words = {
        "minimum": f"the smallest allowed is {bound}",
        "maximum": f"the largest allowed is {bound}",
        "exclusiveMinimum": f"it must be above {bound}",
        "exclusiveMaximum": f"it must be below {bound}",
        "minLength": "it must not be empty",
        "minItems": "it must not be empty",
        "minProperties": "it must not be empty",
    }
    return words.get(rule, str(error.message))


def _expected(types: list[str], value: Any) -> str:
    """The types in words; `number` stands for `integer` too."""
    names = [name for name in types if name != "integer" or "number" not in types]
    *most, last = dict.fromkeys(_TYPES[name] for name in names)
    words = f"{', '.join(most)} or {last}" if most else last
    hint = ""
    if isinstance(value, str | int | float):
        hint = (
            f", as [{value}]" if "array" in types else f", as '{value}'" if last == "text" else ""
        )
    return f"expected {words}{hint}"


def _from_msgspec(origin: str, key: str, message: str) -> str:
    """`Expected ... - at `$.a[0]`` as `origin: a[0]: expected ...`."""
    text, _, place = message.partition(" - at ")
    path = re.sub(r"^.*\$\.?", "", place.strip("`"))
    where = ".".join(part for part in (key, path) if part)
    return f"{origin}: {where}{': ' if where else ''}{text[:1].lower()}{text[1:]}"


def _dotted(key: str, path: Iterable[Any]) -> str:
    """`factors.workers.levels[2]: `, or nothing for the whole file."""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return f"{key}: " if key else ""


def _place(fault: Fault) -> list[tuple[int, int, str]]:
    """Sorts by path, list indices as numbers."""
    return [(0, p, "") if isinstance(p, int) else (1, 0, str(p)) for p in fault[0]]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _show(value: Any) -> str:
    """A value as YAML writes it, texts in quotes, cut where it is long."""
    text = repr(value) if isinstance(value, str) else _plain(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}[value] if _is_word(value) else str(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)
