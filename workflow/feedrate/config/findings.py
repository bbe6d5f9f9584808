"""What a check found wrong in one file of the configuration, told line by line."""

from collections.abc import Iterable, Iterator
from typing import Any


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
