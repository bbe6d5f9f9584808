"""Reading configuration: YAML in, checked types out, and one clear error for what is wrong."""

import ast
import difflib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigError(Exception):
    """A wrong configuration, told in one message: file, key, value and what is allowed."""


def read_yaml(path: Path) -> Any:
    """Parse a YAML file. Raises ConfigError where it is missing or not YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{path}{line}: {problem}") from None


def load(path: Path, kind: type[T]) -> T:
    """Read `path` as a value of `kind`. Raises ConfigError for anything that does not fit."""
    return convert(read_yaml(path), kind, str(path))


def convert(value: Any, kind: type[T], origin: str) -> T:
    """Check `value` against `kind`; `origin` (a file's name) opens the error message."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(value, kind, origin, str(error))) from None


def convert_text(text: str, kind: type[T], origin: str) -> T:
    """Check a mapping that came as text: a dict param, as Snakemake prints it (Python literal)."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ConfigError(f"{origin}: {text[:80]!r} is not a mapping") from None
    return convert(value, kind, origin)


def explain(value: Any, kind: Any, origin: str, fallback: str) -> str:
    """All that is wrong with `value`, a line each; slow, so only called after a failure."""
    import jsonschema  # heavy, and only needed to explain

    schema = msgspec.json.schema(kind)
    validator = jsonschema.Draft202012Validator(schema)
    lines: list[str] = []
    for error in sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path))):
        lines.extend(_explain_one(error, origin))
    return "\n".join(dict.fromkeys(lines)) or f"{origin}: {fallback}"


def _explain_one(error: Any, origin: str) -> list[str]:
    key = ".".join(map(str, error.absolute_path)) or "(top level)"
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        extra = [name for name in error.instance if name not in known]
        return [f"{origin}: {_join(key, name)}: unknown key{_hint(name, known)}" for name in extra]
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [f"{origin}: {_join(key, name)}: missing, but required" for name in missing]
    if error.validator == "anyOf" and error.context:
        deeper = [e for e in error.context if e.absolute_path != error.absolute_path]
        if deeper:
            return [line for e in deeper for line in _explain_one(e, origin)]
    return [f"{origin}: {key}: {error.instance!r} is not allowed; {_allowed(error)}"]


def _join(key: str, name: object) -> str:
    return str(name) if key == "(top level)" else f"{key}.{name}"


def _hint(name: object, known: list[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{meant}; allowed: {', '.join(known)}"


def _allowed(error: Any) -> str:
    rule, bound = error.validator, error.validator_value
    words = {
        "enum": lambda: "allowed: " + ", ".join(map(repr, bound)),
        "type": lambda: f"expected {bound if isinstance(bound, str) else ' or '.join(bound)}",
        "minimum": lambda: f"the smallest allowed is {bound}",
        "maximum": lambda: f"the largest allowed is {bound}",
        "exclusiveMinimum": lambda: f"it must be above {bound}",
        "pattern": lambda: f"it must match {bound}",
        "minLength": lambda: "it must not be empty",
        "minItems": lambda: f"at least {bound} needed",
        "anyOf": lambda: "expected " + " or ".join(_alternative(s) for s in bound),
    }
    return words[rule]() if rule in words else str(error.message)


def _alternative(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    return str(schema.get("type", schema.get("$ref", "another type").rsplit("/", 1)[-1]))
