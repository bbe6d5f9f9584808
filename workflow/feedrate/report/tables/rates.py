"""Rates along a factor and by the number of devices: speed-ups, the largest that fits, scaling."""

from feedrate.config.values import level_text
from feedrate.report import text
from feedrate.report.answers import not_faster
from feedrate.report.context import PageSettings
from feedrate.report.lines import (
    Line,
    Point,
    Speedup,
    Speedups,
    baseline_speedups,
    by_device_count,
    device_speedups,
    ladder_lines,
)
from feedrate.report.rows import Inputs
from feedrate.report.table import Column, Field, Row, Shown, Table, listed, three

KINDS = {"largest": 90, "speedup": 140, "scaling": 150}


def speedup(settings: PageSettings, inputs: Inputs) -> Table:
    """Speed-ups over each device's own baseline, and of one device over another. Columns are the
    levels of the table's factor."""
    factor, cells = settings.factor, inputs.cells(settings.study)
    fixed = {k: at for k, at in settings.baseline.items() if k not in settings.within}
    rows: list[Row | str] = [
        f"Relative to the same device's baseline ({text.levels_text(fixed)})",
        *_rows(baseline_speedups(settings, cells, factor)),
    ]
    if across := device_speedups(settings, cells, factor):
        rows += ["One device relative to another with equal settings", *_rows(across)]
    heads = listed(*map(level_text, settings.factors[factor].levels))
    return Table(settings.factor_label(factor), heads, rows)


def _rows(lines: Speedups) -> list[Row]:
    return [Row(name, list(map(_field, speedups))) for name, speedups in lines.items()]


def _field(speedup: Speedup) -> Field:
    if speedup.value is None:
        return Field(speedup.reason, word=True)
    interval = text.ratio_interval(speedup.low, speedup.high)
    return Field(text.ratio(speedup.value), [interval], speedup.cells)


def largest(settings: PageSettings, inputs: Inputs) -> Table:
    """The largest batch that fits and the fastest batch, for every other setting of a study; the
    table's factor ascends."""
    factor = settings.factor
    label = settings.factor_label(factor)

    def level(point: Point | None, *notes: str) -> Field:
        return Field(level_text(point.levels[factor]) if point else text.DASH, notes)

    def largest_of(line: Line) -> Field:
        return level(line.largest) if line.largest else Field("none", word=True)

    def fastest_of(line: Line) -> Field:
        row = line.fastest.row if line.fastest else None
        basis = row.basis.removeprefix(", ") if row else ""
        return level(line.fastest, not_faster(settings, line, factor), basis)

    def limit(line: Line) -> Field:
        row = line.out_of_memory.row if line.out_of_memory else None
        return level(line.out_of_memory, row.cause.split(". ")[0] if row else "")

    columns = [
        Column(f"Largest {label} that fits", largest_of),
        Column("Its throughput", lambda line: _rate(line.largest), unit="samples/s"),
        Column("Its peak memory", lambda line: _of(line, "peak_memory_gib"), three, "GiB"),
        Column("Its allocator retries", lambda line: _of(line, "allocator_retries"), text.integer),
        Column(f"Fastest {label} measured", fastest_of),
        Column("Its throughput", lambda line: _rate(line.fastest), unit="samples/s"),
        Column("Out of memory from", limit),
    ]
    cells = inputs.cells(settings.study)
    rows: list[Row | str] = []
    for device in settings.measured:
        rows.append(text.with_remark(settings.label(device), settings.limit(device)))
        lines = ladder_lines(settings, cells, factor, device)
        rows += [Row(text.values_text(line.others), line) for line in lines]
    others = (settings.factor_label(name) for name in settings.factors if name != factor)
    return Table(", ".join(others), columns, rows, "last-text")


def _of(line: Line, column: str) -> float | None:
    """A value of the largest cell that fits."""
    return getattr(line.largest.row, column) if line.largest and line.largest.row else None


def _rate(point: Point | None) -> Shown:
    if point is None:
        return text.DASH
    return Field(text.number(point.value), [text.interval(point.low, point.high)], [point.row])


def scaling(settings: PageSettings, inputs: Inputs) -> Table:
    """Measured throughput by the number of devices: a group of rows for each device family and cell
    that was measured on several."""
    rows: list[Row | str] = []
    for name, cells in by_device_count(settings, inputs.cells(settings.study)).items():
        if len(cells) > 1:
            rows.append(name)
            rows += [Row(Field(str(n), of=[cell]), cell) for n, cell in sorted(cells.items())]
    if not rows:
        rows.append(Row("", wide="No setting was measured on several numbers of devices."))
    columns = [
        Column("Measured", "samples_per_s", text.number, "samples/s"),
        Column("TFLOP/s per device", "tflops_per_device", three),
    ]
    return Table("Devices", columns, rows)
