"""Which cells may be compared with each other, and whether our run was the published experiment: a
source's sheet compared with it, item by item.

What must be the same depends on what is compared; docs/results.md gives the reasons.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

from feedrate.config.study import Fact, Factor, Item, Published
from feedrate.config.values import Level, level_text
from feedrate.config.workflow import Hub
from feedrate.results.study_plan import StudyPlan

WORKERS = "loader.workers"
TOKENS = "loader.max_tokens"  # the setting of the loader that changes what a device computes
TRAINED = ("model.name", "model.size", "model.image_px", "model.losses")
"""The settings that say what is trained. Speeds of cells that differ in one are not compared."""

Levels = Mapping[str, Any]  # a row of a cell or a run, which has its levels by factor


def trains_the_same(factors: Mapping[str, Factor], cell: Levels, other: Levels) -> bool:
    """Whether cells with these levels train the same: their settings in TRAINED are equal."""
    return _differing(factors, cell, other).isdisjoint(TRAINED)


def computes_the_same(factors: Mapping[str, Factor], cell: Levels, other: Levels) -> bool:
    """Whether a device computes the same in cells with these levels, however they load."""
    differing = _differing(factors, cell, other)
    return TOKENS not in differing and all(name.startswith("loader.") for name in differing)


def _differing(factors: Mapping[str, Factor], cell: Levels, other: Levels) -> set[str]:
    """The settings in which these cells differ, without settings that are adapted for a device."""
    settings: dict[str, Any] = {}
    other_settings: dict[str, Any] = {}
    for levels, values in ((cell, settings), (other, other_settings)):
        for name, factor in factors.items():
            if factor.sets:
                values[factor.sets] = levels[name]
            else:
                values |= factor.bundles.get(level_text(levels[name]), {})
    names = settings.keys() | other_settings.keys()
    return {name for name in names if settings.get(name) != other_settings.get(name)}


Kind = Literal["rate", "ratio", "memory", "loss"]
"""What is compared: rates (also of two devices), settings of one device, memory, or losses."""

RATES = ("samples_per_s", "tflops_per_device")  # metrics that the ends of epochs lower
_RUN: frozenset[Item] = frozenset({"device", "devices", "model", "precision"})
NEEDS: dict[Kind, tuple[frozenset[Item], set[Item]]] = {
    "rate": (_RUN | {"data", "parallelism", "batch_size", "warmup_steps"}, {"steps_per_epoch"}),
    "ratio": (_RUN | {"data"}, {"parallelism", "batch_size", "steps_per_epoch"}),
    "memory": (_RUN | {"parallelism"}, {"batch_size"}),
    "loss": (_RUN | {"data", "checkpoint", "parallelism", "batch_size", "steps_per_epoch"}, set()),
}
"""Items that the source must state and that must be the same; and those that must not differ, as
far as the source states them."""


class Compared(NamedTuple):
    """An item of a sheet, and what our run did."""

    item: Item
    says: tuple[Level, ...]
    here: Level | None

    @property
    def label(self) -> str:
        """The item in words."""
        return self.item.replace("_", " ").replace("warmup", "warm-up").replace("tf32", "TF32")

    @property
    def outcome(self) -> str:
        """same, different, or not stated."""
        if not self.says:
            return "not stated"
        return "same" if self.here in self.says else "different"

    @property
    def reason(self) -> str:
        """The words of the source, and those of our run."""
        source = " or ".join(map(_word, self.says)) or "not stated"
        here = "not known" if self.here is None else _word(self.here) or "not known"
        return f"{self.label}: {source} in the source, {here} here"


def _word(level: Level) -> str:
    return ("off", "on")[level] if isinstance(level, bool) else level_text(level)


def stated(row: Published | None, plan: StudyPlan) -> dict[Item, Fact]:
    """The facts in a published number's row and sheet; the sheet takes precedence. Without a row:
    those of the study's sheet, for a statement about cells that have no number."""
    facts: dict[Item, Fact] = {}
    names: tuple[Item, ...] = ("device", "batch_size", "software")
    for name in names:
        value = getattr(row, name, None)
        if value:
            facts[name] = Fact(says=value, where="its row")
    sheet = plan.project.sheets.get(row.sheet if row else plan.study.source.sheet)
    return facts | (sheet.facts if sheet else {})


def compare(row: Published | None, run: Mapping[str, Any], plan: StudyPlan) -> list[Compared]:
    """Compare each item of a published number's sheet (None: of a statement) with a run's row."""
    facts = stated(row, plan)
    columns = {"devices": "world_size", "software": "library"}
    levels: dict[Item, Level | None] = {i: run.get(columns.get(i, i)) for i in get_args(Item)}
    steps = run.get("steps_per_epoch")
    if steps and run.get("batch_size"):  # without an incomplete last step of an epoch
        micro = run["batch_size"] * (run.get("gradient_accumulation") or 1)
        levels["rows"] = steps * micro * run["world_size"]
    dataset = plan.project.config.datasets.get(run.get("dataset", ""))
    levels["data"] = dataset.name if isinstance(dataset, Hub) else run.get("dataset")
    levels["tf32"] = run.get("precision") == "tf32"
    levels["window"] = f"{run['steps']} steps" if run.get("steps") else None
    says = {item: fact.values for item, fact in facts.items()}
    return [Compared(item, says.get(item, ()), level) for item, level in levels.items()]


def in_the_way(compared: Iterable[Compared], kind: Kind) -> list[Compared]:
    """The items for which a number of this kind cannot be judged. TF32 matters where our run
    computed in single precision. Two settings of a device may differ in batch by a factor of 2."""
    items = {item.item: item for item in compared}
    same, not_different = NEEDS[kind]
    if items["precision"].here == "fp32" and kind != "memory":
        same = same | {"tf32"}
    batch = items["batch_size"]
    if kind == "ratio" and isinstance(batch.here, int):
        sizes = [size for size in batch.says if isinstance(size, int)]
        if any(size / 2 <= batch.here <= 2 * size for size in sizes):
            not_different = not_different - {"batch_size"}
    return [
        item
        for name, item in items.items()
        if (name in same and item.outcome != "same")
        or (name in not_different and item.outcome == "different")
    ]
