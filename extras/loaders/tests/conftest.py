"""The loader libraries of `make test`, and what the project's own tests share."""

import sys
from pathlib import Path

import pytest

from feedrate.config.spec import LIBRARIES
from feedrate.core import plugins
from feedrate_loaders.libraries._rules import missing_packages
from session import modules_digested_once, own_files, pytest_runtest_setup  # noqa: F401
from unit.conftest import counted_once, known_flops, tiny_prepared  # noqa: F401
from unit.loading.conftest import (  # noqa: F401
    make_pairs,
    short_waits,
    store_of,
    tokenizer,
    warm_forkserver,
)

LOADERS = Path(__file__).resolve().parents[3] / ".loaders"
LEFT_OUT = {"dali": "its packages are large", "ffcv": "it needs a compiler"}

if "spdl" not in plugins.names(LIBRARIES):
    install = "pip install --no-deps --no-build-isolation -e extras/loaders"
    raise pytest.UsageError(f"feedrate-loaders is not installed: .venv/bin/{install}")


@pytest.fixture(scope="module")
def libraries():
    """The loader libraries of `make test`. The tests of other modules find none installed."""
    sys.path.append(str(LOADERS))
    missing_packages.cache_clear()
    yield
    sys.path.remove(str(LOADERS))
    missing_packages.cache_clear()


@pytest.fixture
def needs(libraries):
    """Skips a test if a library is not installed here. `make test` installs all but two."""

    def _needs(library, form="same"):
        why = missing_packages(library)
        if why and library in LEFT_OUT:
            pytest.skip(f"{library} is not among the tests' libraries: {LEFT_OUT[library]}")
        if why and not LOADERS.exists():
            pytest.skip("no .loaders: `make test` makes it (loader libraries in a folder)")
        assert not why
        if why := missing_packages(library, form):
            pytest.skip(why)

    return _needs
