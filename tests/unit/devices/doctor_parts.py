"""Stand-ins for drivers' tools and vendors' packages, and what doctor finds of them."""

from pathlib import Path

import msgspec

from feedrate.config.project import Project
from feedrate.devices.doctor import FAILS, FINE, SLOW, UNKNOWN, Finding, examine


def program(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def package(folder: Path, name: str, version: str, /, **files: str) -> None:
    """A package with modules, in the interpreter's path."""
    where = folder / "site" / name.replace("-", "_")
    where.mkdir(parents=True, exist_ok=True)
    (where / "__init__.py").touch()
    for module, text in files.items():
        (where / f"{module}.py").write_text(text)
    info = folder / f"site/{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def look(project: Project, *specs, **options) -> dict[str, Finding]:
    """The findings by subject, the worst of each."""
    h100 = msgspec.structs.replace(project.devices["h100"], count=1)
    known = {**project.devices, "h100-x1": h100}
    wide = msgspec.structs.replace(project, devices=known)
    order = [FINE, UNKNOWN, SLOW, FAILS]
    found = sorted(examine(wide, specs, **options), key=lambda one: order.index(one.outlook))
    assert all(one.remedy for one in found if one.outlook != FINE), "each says what to do"
    assert not any("\n" in one.text + one.remedy for one in found), "one sentence each"
    return {one.subject.removeprefix("h100-x1: "): one for one in found}


def bad(found: dict[str, Finding]) -> dict[str, str]:
    return {subject: one.outlook for subject, one in found.items() if one.outlook != FINE}
