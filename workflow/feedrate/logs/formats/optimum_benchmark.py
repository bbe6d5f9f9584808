"""Reports of optimum-benchmark (0.2 to 0.6): benchmark_report.json, and benchmark.json, which has
the configuration too. https://github.com/huggingface/optimum-benchmark"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.core.errors import LogError
from feedrate.jobs.causes import Cause
from feedrate.logs.reading import Found, load_json
from feedrate.logs.trainer import number

IMPORTS = ("benchmark_report.json", "benchmark.json")

TRAINED = "train"
"""The target without warm-up; `overall` is with it, `warmup` is warm-up alone."""
LEFT_OUT = ("overall", "warmup", "load", "load_model", "load_from_pretrained")
UNITS = ("samples/s", "images/s")
MB, GIB = 1e6, 2**30


def read(path: Path) -> Iterator[Found]:
    """The training of a report, or each target of an inference. Raises LogError."""
    whole = load_json(path)
    report = whole.get("report", whole)
    targets = report.items() if isinstance(report, dict) else ()
    known = {name: value for name, value in targets if isinstance(value, dict)}
    if not any("latency" in value or "throughput" in value for value in known.values()):
        raise LogError(f"{path.name}: no report of optimum-benchmark")
    version = _at(whole, "config", "environment", "optimum_benchmark_version")
    wanted = {n: v for n, v in known.items() if n == TRAINED or TRAINED not in known}
    for name, target in wanted.items():
        if name not in LEFT_OUT and (found := _target(name, target, version)):
            yield found


def _target(name: str, target: dict[str, Any], version: Any) -> Found | None:
    rate, unit = (_at(target, "throughput", key) for key in ("value", "unit"))
    if number(rate) is None or unit not in UNITS:
        return None
    steps, total_s = (number(_at(target, "latency", key)) for key in ("count", "total"))
    peak = number(_at(target, "memory", "max_allocated"))
    metrics = {
        "train_samples_per_second": rate,
        "train_runtime": total_s,
        "train_steps_per_second": steps / total_s if steps and total_s else None,
        "max_memory_allocated (GB)": peak and peak * MB / GIB,
    }
    return Found(
        metrics={key: value for key, value in metrics.items() if value is not None},
        cause=Cause("success", f"{name}: throughput of {rate}"),
        label="" if name == TRAINED else name,
        library=f"optimum-benchmark {version}" if version else "optimum-benchmark",
        note="memory is the sum of all processes" if peak else "",
        order=1,
    )


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
