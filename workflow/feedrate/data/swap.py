"""A folder that is replaced as a whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target`; on success it takes the place of `target`.

    An error or a crash at any point leaves `target` as it was; what a crash left beside it is
    cleared by the next call.
    """
    part = target.with_name(f".{target.name}.part")
    old = target.with_name(f".{target.name}.old")
    _settle(target, part, old)
    part.mkdir(parents=True)
    try:
        yield part
        if target.exists():
            target.rename(old)
        part.rename(target)
    finally:
        _settle(target, part, old)


def _settle(target: Path, part: Path, old: Path) -> None:
    """Bring back the old folder where the new one did not come, and clear the rest."""
    if old.exists() and not target.exists():
        old.rename(target)
    for leftover in (part, old):
        if leftover.exists():
            shutil.rmtree(leftover)
