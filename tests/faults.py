"""What each fault leads to: the rows of tests/golden/faults.yaml."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

TABLE = Path(__file__).parent / "golden/faults.yaml"


class Fault(NamedTuple):
    """One row; the table explains its columns."""

    fault: str
    where: str
    status: str | None
    cause: str
    exit_code: int | None
    report: bool | None
    test: str
    part: str = ""

    def outcome(self) -> tuple[str | None, bool]:
        """Status of an outcome, and whether its cause is the infrastructure."""
        return self.status, self.cause == "infrastructure"


def read_faults() -> list[Fault]:
    rows: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Fault(**row) for row in rows]


def fault(name: str, where: str) -> Fault:
    """The row of a fault in a job, locally or on Slurm."""
    (row,) = (row for row in read_faults() if (row.fault, row.where) == (name, where))
    return row
