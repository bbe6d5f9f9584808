"""The copy of the project that tests edit and plan."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from project_copy import Copy

from feedrate.flow import identity


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copy]:
    """A copy of this project, which is the working directory."""
    found = Copy(tmp_path / "project")
    monkeypatch.setattr(identity, "PACKAGE", found.root / "workflow/feedrate")
    with contextlib.chdir(found.root):
        yield found
