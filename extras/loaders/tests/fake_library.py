"""A loader library that is not installed: its batches are a function's."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from feedrate.config.spec import LIBRARIES
from feedrate.core import plugins

NAME = "fake"


def install(
    patch: pytest.MonkeyPatch,
    batches: Callable[[Any], Iterator[Any]],
    *,
    own_order: bool = False,
    on_import: Callable[[], None] = lambda: None,
) -> None:
    """Make `loader.library: fake` one whose form "same" gives these batches."""
    real, load_real, plugin = plugins.declared, plugins.load, SimpleNamespace(same=batches)
    names, home = plugins.names, plugins.home
    facts: dict[str, Any] = {
        "PACKAGES": {NAME: ("torch",)},
        "FORMS": {NAME: {"same": ("reference", "host", "cache")}},
        "OWN_ORDER": {NAME: True} if own_order else {},
    }

    def declared(kind: str, constant: str) -> Any:
        return facts.get(constant, {}) if kind == LIBRARIES else real(kind, constant)

    def load(kind: str, name: str) -> Any:
        if kind != LIBRARIES:
            return load_real(kind, name)
        on_import()
        return plugin

    def has_fake(kind: str) -> tuple[str, ...]:
        return (*names(kind), NAME) if kind == LIBRARIES else names(kind)

    patch.setattr(plugins, "names", has_fake)
    patch.setattr(plugins, "home", lambda kind, name: home(kind, "grain" if name == NAME else name))
    patch.setattr(plugins, "declared", declared)
    patch.setattr(plugins, "load", load)
