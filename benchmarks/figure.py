"""One figure of a benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value and its goal (`at_most`: smaller is better)."""

    name: str
    value: float
    goal: float
    unit: str
    note: str = ""
    at_most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return (
            f"{self.name:58} {self.value:9.3f} {sign}{self.goal:7.3g}  {self.unit:9} "
            f"{'yes' if self.holds else 'NO'}  {self.note}".rstrip()
        )
