"""The loaders: decode paths against the reference, the machine's limits, and a real step."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.default_study import ROOT, default_spec, job_environment, prepare_default
from benchmarks.drain import BATCH, PX
from benchmarks.figure import Figure
from benchmarks.process import run

ROUNDS = 5
WORKERS = (0, 1, 2)
EQUAL_WITHIN_ROUNDING = 0.02
PER_CPU = {"host": 3.0, "host scaled": 4.0}
"""Goals in samples per CPU second relative to the reference."""
PEER_ROUNDS, BEST_OTHER, CACHE_SHARE = 3, 1.15, 0.95
EQUAL_PIXELS = 0.5
"""Mean difference of another reader's pixels, of 255, up to which its speed counts."""
GOALS = {
    "decoding": "decoding >= 1.15 x best other",
    "cache": "cache >= 0.95 of index_select",
    "memory": "memory <= 1.10 x spdl-core's",
    "first batch": "first batch <= any other's",
}
OWN = "make bench ARGS=loading PICTURES=FOLDER"
OWN_PICTURES = [folder for folder in [os.environ.get("FEEDRATE_BENCH_PICTURES")] if folder]
"""A folder of JPEG files that are measured beside the generated ones."""
CACHE = {0: 100.0, 1: 20.0, 2: 20.0}
"""Goals in samples per second relative to the reference, by workers."""


def measure() -> Iterator[Figure]:
    """Medians of the ratios within each interleaved round."""
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare_default(Path(name))
        drains, limits, pixels = measurements(prepared)
        yield Figure(
            "host: pixels against Pillow's, mean abs diff",
            pixels["to Pillow"],
            EQUAL_WITHIN_ROUNDING,
            "of 255",
            "to the reference {host:.3f}, {host, dB:.0f} dB; scaled {host scaled:.2f}, "
            "{host scaled, dB:.0f} dB".format(**pixels),
        )
        yield from ratios(drains)
        yield from shares_of_limits(drains, limits)
        yield from beside_the_reference(drains)
        yield input_share(Path(name), prepared)
        peers = printed("peers", prepared, name, PEER_ROUNDS, *OWN_PICTURES)
        beside = list(beside_others(peers))
        yield from beside
        print(goals(beside, [one for one in peers if one["what"] == "missing"]), flush=True)


Drains = dict[tuple[str, int], list[dict[str, float]]]


def measurements(prepared: Path) -> tuple[Drains, list[dict[str, float]], dict[str, float]]:
    """The output of `benchmarks.drain`: drains by path and workers, limits by round, pixels."""
    drains: Drains = {}
    limits: list[dict[str, float]] = []
    pixels: dict[str, float] = {}
    for values in printed("drain", prepared, ROUNDS):
        match values.pop("what"):
            case "drain":
                key = (values.pop("level"), values.pop("workers"))
                drains.setdefault(key, []).append(values)
            case "limits":
                limits.append(values)
            case "pixels":
                pixels = values
    return drains, limits, pixels


def printed(module: str, *arguments: object) -> list[dict[str, Any]]:
    """The JSON lines that a module of the benchmarks prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in said.stdout.splitlines()]


def beside_others(measured: list[dict[str, Any]]) -> Iterator[Figure]:
    """The goals beside other libraries; each figure's note gives what decides it."""
    by_what: dict[str, dict[Any, list[dict[str, Any]]]] = {}
    for values in measured:
        key = next(
            values[name]
            for name in ("group", "level", "workers", "loader", "library")
            if name in values
        )
        by_what.setdefault(values["what"], {}).setdefault(key, []).append(values)
    for library, (values, *_) in by_what.get("missing", {}).items():
        print(f"{library} does not take part: {values['why']}", flush=True)
    for group, rounds in by_what.get("decode", {}).items():
        yield decoding(group, rounds)
    for group, rounds in by_what.get("decoders", {}).items():
        yield alone(group, rounds)
    if "between" in by_what:
        yield between(by_what["between"])
    for workers, pairs in by_what.get("gather", {}).items():
        yield cache(workers, pairs)
    yield from beside_transports(by_what.get("transport", {}))


def decoding(group: str, rounds: list[dict[str, Any]]) -> Figure:
    """Our CPU time per picture against that of the best other reader with equal pixels."""
    # Other load only adds CPU time, so the least is nearest to the truth.
    ms = {reader: min(one["ms"][reader] for one in rounds) for reader in rounds[0]["ms"]}
    mine, off = ms.pop("feedrate"), rounds[0]["off"]
    decoder, floor, calls = (ms.pop(part) for part in ("decoding alone", "floor", "calls"))
    equal = {reader: its_ms for reader, its_ms in ms.items() if off[reader] <= EQUAL_PIXELS}
    best = min(equal, key=equal.__getitem__)
    others = ", ".join(f"{reader} {its_ms:.2f}" for reader, its_ms in ms.items())
    note = f"{mine:.2f} ms; {others}; libjpeg-turbo alone {decoder:.2f}"
    if equal[best] / mine < BEST_OTHER:
        note += f", {decoder / mine:.0%} of our time"
        note += f" (x{equal[best] / decoder:.2f} if resizing cost nothing)"
        note += f"; decoding, and resizing no more pixels than the crop keeps, {floor:.2f}: "
        gain = f"{max(0.0, mine - floor):.2f} ms could still be gained, but even a picture of 8 px "
        gain += f"takes {calls:.2f} ms, for the calls"
        reachable = equal[best] / floor >= BEST_OTHER
        note += gain if reachable else "out of reach with libjpeg-turbo and torch's resize"
    name = f"decoding, {group}: time of {best}"
    return Figure(name, equal[best] / mine, BEST_OTHER, "x", note, at_most=False)


def alone(group: str, rounds: list[dict[str, Any]]) -> Figure:
    """The fastest decoder of whole files against ours, simplejpeg."""
    ms = {name: min(one["ms"][name] for one in rounds) for name in rounds[0]["ms"]}
    best = min(ms, key=ms.__getitem__)
    note = f"{best}; ms: " + ", ".join(f"{name} {its_ms:.3g}" for name, its_ms in ms.items())
    return Figure(
        f"decoder alone, {group}", ms[best] / ms["simplejpeg"], 0, "x", note, at_most=False
    )


def between(levels: dict[str, list[dict[str, Any]]]) -> Figure:
    """Crops stored as JPEG files, a level between `host` and `cache`: time against host's."""
    ms = {name: min(one["ms"] for one in rounds) for name, rounds in levels.items()}
    kb = {name: rounds[0]["bytes"] / 1e3 for name, rounds in levels.items()}
    note = f"{ms['stored']:.2f} ms, {kb['stored']:.0f} kB; host {ms['host']:.2f} ms, "
    note += f"{kb['host']:.0f} kB; cache {3 * PX**2 / 1e3:.0f} kB"
    times = ms["stored"] / ms["host"]
    return Figure("crops as JPEG files: time of host's", times, 0, "x", note, at_most=False)


def cache(workers: int, pairs: list[dict[str, float]]) -> Figure:
    """The cache's rate against that of one index_select a batch, in the middle of the pairs."""
    shares = sorted(one["limit_s"] / one["wall_s"] for one in pairs)
    limit_ms, ahead_ms, copy_ms, wall_ms, cpu_ms = (
        1e3 * median(one[name] for one in pairs)
        for name in ("limit_s", "ahead_s", "copy_s", "wall_s", "cpu_s")
    )
    # The second and the last but one of nine enclose the median with 96%.
    note = f"{shares[1]:.2f} to {shares[-2]:.2f} (96%); a batch takes {wall_ms:.2f} ms, "
    note += f"{cpu_ms:.2f} ms of CPU time, the index_select {limit_ms:.2f} ms, "
    note += f"the cache's own copy {copy_ms:.2f} ms: the rest is tokens, order and hand-over"
    if workers:
        note += f"; {ahead_ms:.2f} ms into {pairs[0]['buffers']:.0f} buffers in turn, as batches "
        note += "made ahead need: they leave the processor's cache"
    name = f"cache, {workers} workers: of one index_select"
    return Figure(name, median(shares), CACHE_SHARE, "", note, at_most=False)


def beside_transports(transports: dict[str, list[dict[str, float]]]) -> Iterator[Figure]:
    """First batch and memory of the process tree, against those of other libraries."""
    middle = {
        name: {key: median(one[key] for one in rounds) for key in ("first_s", "tree_mib", "per_s")}
        for name, rounds in transports.items()
    }
    others = {name: values for name, values in middle.items() if name not in ("fork", "thread")}
    if others:
        yield rates(middle)
    for name in ("fork", "thread") if others else ():
        mine = middle[name]
        first = min(others, key=lambda other: others[other]["first_s"])
        firsts = ", ".join(f"{other} {its['first_s']:.2f}" for other, its in others.items())
        value = mine["first_s"] / others[first]["first_s"]
        first_s = sorted(one["first_s"] for one in transports[name])
        note = f"{mine['first_s']:.2f} s ({first_s[0]:.2f} to {first_s[-1]:.2f}); {firsts}"
        later_s = mine["first_s"] - middle["thread"]["first_s"]
        if value > 1:
            note += f"; once running, they make a batch in {BATCH / mine['per_s']:.2f} s"
            if later_s > 0:
                note += f"; our threads start {later_s:.2f} s sooner: they need no processes"
        yield Figure(f"first batch, {name}: of {first}'s time", value, 1, "x", note)
        if "spdl" in others:
            value = mine["tree_mib"] / others["spdl"]["tree_mib"]
            rate = mine["per_s"] / others["spdl"]["per_s"]
            note = f"{mine['tree_mib']:.0f} MiB; {rate:.2f} x its rate"
            yield Figure(f"memory, {name}: of spdl-core's process tree", value, 1.1, "x", note)


def rates(middle: dict[str, dict[str, float]]) -> Figure:
    """Our processes' rate against that of the fastest other loader; the note has all rates."""
    per_s = {name: values["per_s"] for name, values in middle.items()}
    mine = per_s["fork"]
    best = max((name for name in per_s if name != "fork"), key=per_s.__getitem__)
    note = f"{mine:.0f} samples/s; " + ", ".join(
        f"{name} {rate:.0f}" for name, rate in per_s.items() if name != "fork"
    )
    return Figure(f"rate, fork: of {best}'s", mine / per_s[best], 0, "x", note, at_most=False)


def goals(figures: list[Figure], missing: list[dict[str, Any]]) -> str:
    """A table of the four goals beside other libraries: each is met, missed with the reasons, or
    not measured, with the commands that install what is `missing`."""
    lines = ["", "goal beside other libraries     verdict"]
    for name, what in GOALS.items():
        found = [figure for figure in figures if figure.name.startswith(name)]
        reasons = [f"{one.name} {one.value:.2f}: {one.note}" for one in found if not one.holds]
        absent = {one["library"]: one["why"] for one in missing if name in one["goals"]}
        verdict = "missed: " if reasons else "met"
        if found:
            reasons += [f"Not compared: {', '.join(absent)}."] * bool(absent)
            verdict += ". " * (verdict == "met" and bool(absent))
        else:
            verdict, reasons = "not measured: ", [*dict.fromkeys(absent.values())]
        lines.append(f"{what:32}{verdict}" + f"\n{'':32}".join(reasons))
    if not any("folder" in figure.name for figure in figures):
        lines.append(f"Your own pictures too: {OWN}")
    return "\n".join(lines)


def against(drains: Drains, level: str, workers: int, name: str) -> float:
    """The median of a number's ratios to the reference's in the same round."""
    ours, theirs = drains[level, workers], drains["reference", workers]
    return median(a[name] / b[name] for a, b in zip(ours, theirs, strict=True))


def middle(drains: Drains, level: str, workers: int, name: str) -> float:
    """The median of a number."""
    return median(values[name] for values in drains[level, workers])


def ratios(drains: Drains) -> Iterator[Figure]:
    """Speed of each decode path relative to the reference."""
    for level, goal in PER_CPU.items():
        for workers in WORKERS:
            rate = middle(drains, level, workers, "per_cpu_s")
            base = middle(drains, "reference", workers, "per_cpu_s")
            yield Figure(
                f"{level}: samples per CPU second, {workers} workers",
                against(drains, level, workers, "per_cpu_s"),
                goal,
                "x",
                f"{rate:.0f}, reference {base:.0f}",
                at_most=False,
            )
    for workers, goal in CACHE.items():
        rate = middle(drains, "cache", workers, "per_s")
        base = middle(drains, "reference", workers, "per_s")
        yield Figure(
            f"cache: samples per second, {workers} workers",
            against(drains, "cache", workers, "per_s"),
            goal,
            "x",
            f"{rate:.0f}, reference {base:.0f}",
            at_most=False,
        )


def shares_of_limits(drains: Drains, limits: list[dict[str, float]]) -> Iterator[Figure]:
    """Share of one core's limit that a path without workers reaches; reported without a goal."""
    for level, limit, what in (
        ("host", "full", "libjpeg-turbo's full decode"),
        ("host scaled", "scaled", "libjpeg-turbo's scaled decode"),
        ("cache", "copy", "copying a batch in memory"),
    ):
        name = "per_s" if level == "cache" else "per_cpu_s"
        ours = [values[name] for values in drains[level, 0]]
        best = [values[limit] for values in limits]
        share = median(a / b for a, b in zip(ours, best, strict=True))
        note = f"{median(ours):.0f} of {median(best):.0f} samples/s"
        yield Figure(f"{level}: share of {what}", share, 0, "", note, at_most=False)


def beside_the_reference(drains: Drains) -> Iterator[Figure]:
    """Start-up and memory of two workers."""
    for level in ("host", "cache"):
        for name, unit, what in (
            ("startup_s", "s", "first batch"),
            ("worker_mib", "MiB", "private memory of a worker"),
        ):
            ours, theirs = (middle(drains, of, 2, name) for of in (level, "reference"))
            note = f"{ours:.3g} {unit}, reference {theirs:.3g} {unit}"
            value = against(drains, level, 2, name)
            yield Figure(f"{level}: {what}, against the reference", value, 1, "x", note)


def input_share(folder: Path, prepared: Path) -> Figure:
    """Data wait in a job of the default study at the best setting: the cache without workers."""
    from feedrate.config.spec import RunSpec
    from feedrate.config.values import convert
    from feedrate.data.manifest import STORE_INDEX, store_folder

    spec = default_spec()
    spec["settings"]["loader"] |= {"decode": "cache", "workers": 0}
    settings = convert(spec, RunSpec, "default study").settings
    store = store_folder(settings, prepared)
    assert store is not None
    make_store(store / STORE_INDEX, prepared, folder, settings)
    job = folder / "cached"
    job.mkdir()
    (job / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, "-m", "feedrate", "worker", "--run", str(job)]
    run([*command, "--data", str(prepared)], folder, job_environment())
    events = [json.loads(line) for line in (job / "events.jsonl").read_text().splitlines()]
    steps = [e for e in events if e["event"] == "step" and not e["warmup"]]
    waits = median(e["data_wait_s"] / e["step_s"] for e in steps)
    note = f"of {median(e['step_s'] for e in steps) * 1e3:.0f} ms a step"
    return Figure("cache: waiting for data, default study", 100 * waits, 1, "% of step", note)


def make_store(out: Path, prepared: Path, folder: Path, settings: Any) -> None:
    """Make the store with its rule's command."""
    import msgspec

    from feedrate.data.manifest import store_spec

    spec = repr(msgspec.to_builtins(store_spec(settings)))
    command = [sys.executable, "-m", "feedrate", "store-dataset", "--data"]
    command += [str(prepared / "manifest.json"), "--settings", spec, "--out", str(out)]
    run(command, folder, job_environment())
