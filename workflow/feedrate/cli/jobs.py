"""The programs that rules and launchers start: `python -m feedrate JOB --option VALUE …`.

A job is a function, and its parameters are its options. Its module is imported only when the job
is called, so that the interpreter of a device's own software needs only what the job itself needs.
"""

import argparse
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from feedrate.core.errors import ExpectedError, explain, fail

JOBS = {
    "fetch_dataset": "data.fetch:fetch_dataset",
    "fetch_winoground": "data.winoground:fetch_winoground",
    "fetch_checkpoint": "data.hub:fetch_checkpoint",
    "preprocess_dataset": "data.prepare:preprocess_dataset",
    "store_dataset": "jobs.store:store_dataset",
    "train": "jobs.supervisor:train",
    "worker": "jobs.worker:run_rank",
    "node": "devices.launchers.srun:run_node",
    "parse_logs": "results.assemble:parse_logs",
    "collect_results": "results.collect:collect_results",
    "check_claims": "results.claims:check_claims",
    "plot_figures": "report.page:plot_figures",
    "tabulate_results": "report.page:tabulate_results",
    "write_report": "report.page:write_report",
    "confirm_results": "results.checks:confirm_results",
    "selftest_device": "cli.selftest:selftest_device",
    "probe": "jobs.probe:probe_device",
}
"""The function of each job, as MODULE:NAME in this package."""

METAVARS = {str: "TEXT", int: "N", float: "X", Path: "PATH"}
"""The types of plain options, and how the help shows their values."""
STOPPED = 130  # exit code after Ctrl-C


def run(job: str, words: Sequence[str]) -> int:
    """Run a job with the options in `words`; return its exit code."""
    program = f"feedrate {job}"
    options: dict[str, Any] = {}

    def work() -> int:
        function = imported(JOBS[job])
        if inspect.getfullargspec(function).varargs:
            return int(function(*words) or 0)
        options.update(vars(parser(program, function).parse_args(words)))
        return int(function(**options) or 0)

    return exit_code(program, work, options)


def imported(place: str) -> Callable[..., Any]:
    """The function at MODULE:NAME in this package."""
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"feedrate.{module}"), name)
    return function


def exit_code(program: str, work: Callable[[], int], options: Mapping[str, Any]) -> int:
    """Do the work of `program` and return its exit code. An expected failure is printed as one
    sentence, which names the folder of the results if a disk error names no file. Other
    exceptions are bugs and keep their traceback."""
    try:
        return work()
    except ExpectedError as error:
        return fail(program, error, error.exit_code)
    except OSError as error:
        out = options.get("out")
        folder = out.parent if out else options.get("results")
        return fail(program, explain(error, folder))
    except KeyboardInterrupt:
        return STOPPED


def parser(program: str, function: Callable[..., Any]) -> argparse.ArgumentParser:
    """A parser with an option per parameter of `function`; `@FILE`: words from a file's lines."""
    result = argparse.ArgumentParser(
        prog=program,
        description=inspect.getdoc(function),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
        allow_abbrev=False,
    )
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        option = "--" + parameter.name.rstrip("_").replace("_", "-")
        result.add_argument(option, dest=parameter.name, **_argument(option, parameter))
    return result


def _argument(option: str, parameter: inspect.Parameter) -> dict[str, Any]:
    """The arguments of `add_argument` for `parameter`."""
    kind = parameter.annotation
    if kind is bool:
        return {"action": "store_true"}
    is_required = parameter.default is parameter.empty
    settings: dict[str, Any] = {"required": True} if is_required else {"default": parameter.default}
    if NoneType in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
        settings["nargs"] = "+" if is_required else "*"
    if kind in METAVARS:
        return {"type": kind, "metavar": METAVARS[kind], **settings}
    about = "a JSON file, or its content"
    return {"type": partial(_read, kind, option), "metavar": "SETTINGS", "help": about, **settings}


def _read(kind: Any, option: str, text: str) -> Any:
    """A checked value of `kind` from a JSON file or JSON text."""
    from feedrate.config.errors import ConfigError
    from feedrate.config.values import convert

    origin = option
    if not text.startswith("{") and Path(text).is_file():
        origin, text = text, Path(text).read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: not JSON ({error})") from None
    return convert(value, kind, origin)
