"""Fixtures and hooks of every test session."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Compute on one thread: threads that wait for each other on a busy machine make tests slow.
    Some tests leave more of them behind."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each worker its own folder for temporary files, and so its own lock of the host."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    tempfile.tempdir = None


@pytest.fixture(scope="session", autouse=True)
def modules_digested_once() -> Iterator[None]:
    """Each text of a module is digested once in a worker: half of what a plan takes otherwise."""
    from feedrate.flow import identity

    known: dict[bytes, list[Any]] = {}
    digest = identity.digest_module

    def digest_once(path: Path) -> list[Any]:
        text = path.read_bytes()
        if text not in known:
            known[text] = digest(path)
        return known[text]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "digest_module", digest_once)
        yield
