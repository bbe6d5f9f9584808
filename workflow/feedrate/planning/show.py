"""A forecast as tables on the terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from feedrate.planning.estimate import START_S
from feedrate.planning.forecast import HERE, Forecast, Jobs, Runs

OF_ITSELF = ("all",)
"""Rules that do nothing."""
SHOWN = ("cpus_per_task", "mem_mb", "runtime")
"""Resources with columns of their own."""
SAID_TWICE = ("mem", "mem_mib", "disk", "disk_mb", "disk_mib")
"""Resources that Snakemake adds: the same in other units, and what Slurm has no word for."""
MIN_WIDTH = 120
"""Columns where the output is no terminal."""


def show(forecast: Forecast) -> None:
    """Print a forecast to stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=MIN_WIDTH)
    console.print(_runs_table(forecast.runs))
    console.print()
    if not forecast.jobs:
        console.print("Nothing to do.")
        return
    console.print(_jobs_table(forecast.jobs))
    console.print()
    for line in _sentences(forecast):
        console.print(line, soft_wrap=True)


def _runs_table(groups: Iterable[Runs]) -> Table:
    groups = list(groups)
    priced = any(group.cost_usd is not None for group in groups)
    table = _table("Runs", "study", "device")
    for name in ("cells", "unsupported", "runs", "done", "to do", "device-hours"):
        table.add_column(name, justify="right", no_wrap=True)
    if priced:
        table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("estimated from", no_wrap=True)
    for group in groups:
        table.add_row(
            group.study,
            group.device,
            *map(
                str,
                (group.cells, group.unsupported_cells, group.runs, group.done, group.to_do),
            ),
            _hours(group),
            *([_cost(group)] if priced else []),
            _bases(group),
        )
    return table


def _jobs_table(jobs: Iterable[Jobs]) -> Table:
    table = _table("Jobs", "rule", "where")
    for name in ("jobs", "cores", "memory", "time limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("asks for")
    for row in jobs:
        if row.rule in OF_ITSELF:
            continue
        asked = dict(row.resources)
        others = [
            f"{k}={v}" for k, v in asked.items() if k not in (*SHOWN, *SAID_TWICE) and v != ""
        ]
        table.add_row(
            row.rule,
            row.place,
            str(row.count),
            str(asked.get("cpus_per_task", row.threads)),
            _memory(asked.get("mem_mb")),
            _minutes(asked.get("runtime")),
            ", ".join(others),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _sentences(forecast: Forecast) -> Iterable[str]:
    """Sums, and what they rest on."""
    to_do = sum(group.to_do for group in forecast.runs)
    unknown = sum(group.unknown for group in forecast.runs)
    if to_do == 0:
        yield "No training job is to be run."
        return
    if to_do == unknown:
        yield "How long this takes is not known: there are no earlier runs and no published rates."
        return
    nodes = "with one node for each device, less with more" if forecast.on_cluster else HERE
    hours = sum(group.device_hours for group in forecast.runs)
    yield (
        f"Training: {hours:.1f} device-hours, about {duration(forecast.wall_s)} {nodes}"
        f"{f', and {unknown} runs of unknown length' if unknown else ''}."
    )
    costs = [group.cost_usd for group in forecast.runs if group.cost_usd is not None]
    if costs:
        unpriced = [g.device for g in forecast.runs if g.cost_usd is None and g.to_do]
        without = f" (without {', '.join(dict.fromkeys(unpriced))})" if unpriced else ""
        yield f"Cost: {sum(costs):.2f} USD by the prices in config/devices.yaml{without}."
    if any("published" in group.bases for group in forecast.runs):
        yield (
            "By published rates: a cell that nobody published is taken at the device's lowest, and "
            f"{duration(START_S)} are added for a job's start."
        )
    yield "Waiting in queues, data, parsing, tables and figures are not in these numbers."


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)


def _hours(group: Runs) -> str:
    if group.to_do == group.unknown:
        return "unknown" if group.to_do else "0"
    known = f"{group.device_hours:.1f}"
    return f"{known} + {group.unknown} unknown" if group.unknown else known


def _cost(group: Runs) -> str:
    if group.cost_usd is None or group.to_do == group.unknown > 0:
        return "unknown"
    return f"{group.cost_usd:.2f} USD"


def _bases(group: Runs) -> str:
    words = {"records": "earlier runs", "published": "published rates"}
    return ", ".join(words[basis] for basis in sorted(group.bases, reverse=True))


def _memory(value: object) -> str:
    if value is None:
        return ""
    return f"{value / 1024:.0f} GiB" if isinstance(value, int) else "?"


def _minutes(value: object) -> str:
    if value is None:
        return ""
    return duration(value * 60) if isinstance(value, int) else str(value)
