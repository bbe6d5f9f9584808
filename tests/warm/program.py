"""The forked process: takes over the client's state, runs the program, exits as Python does."""

import atexit
import contextlib
import fcntl
import importlib
import os
import resource
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def become(
    client: socket.socket,
    asked: dict[str, Any],
    given: Sequence[int],
    executable: str,
    base: list[str],
) -> None:
    """Confirm to the client that its program runs here, and run it; never returns.

    `given` are the descriptors that the client sent; `base` is sys.path without PYTHONPATH. If the
    client's state cannot be taken over, the client runs its program in a new interpreter.
    """
    try:
        take_over(client, asked, given)
        words, environment = asked["argv"][1:], asked["env"]
        flags = set()
        while words[0] in ("-u", "-B"):
            flags.add(words.pop(0))
        sys.dont_write_bytecode = "-B" in flags or bool(environment.get("PYTHONDONTWRITEBYTECODE"))
        equip(environment, at_once="-u" in flags or bool(environment.get("PYTHONUNBUFFERED")))
        own = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:] = [*own, *base]
        sys.executable, sys.orig_argv = executable, [executable, *asked["argv"][1:]]
        finish(run(words))
    finally:
        os._exit(70)


def take_over(client: socket.socket, asked: dict[str, Any], given: Sequence[int]) -> None:
    """Take over the client's limits, cores, folder, files, signals and variables."""
    os.setsid()
    os.umask(asked["umask"])
    os.sched_setaffinity(0, asked["affinity"])
    os.chdir(asked["cwd"])
    above = 1 + max([client.fileno(), *asked["fds"], *given])
    parked = [fcntl.fcntl(one, fcntl.F_DUPFD, above) for one in given]
    for name, limit in asked["limits"].items():
        if resource.getrlimit(number := getattr(resource, f"RLIMIT_{name}")) != tuple(limit):
            resource.setrlimit(number, limit)
    client.send(b"runs")
    client.detach()
    os.closerange(0, above)
    for one, number in zip(parked, asked["fds"], strict=True):
        os.dup2(one, number)
        os.close(one)
    for number in signal.valid_signals():  # not 32 and 33, which make ignores
        if asked["ignored"] >> (number - 1) & 1:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) == signal.SIG_IGN:
            interrupts = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupts else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(asked["env"])


def equip(environment: dict[str, str], *, at_once: bool) -> None:
    """Repeat what Python and its libraries set up at start-up from variables and open files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
            continue
        if getattr(sys, name) is None:  # closed when the server started
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
        if number:
            by_line = at_once or number == 2 or os.isatty(number)
            getattr(sys, name).reconfigure(line_buffering=by_line)
    tempfile.tempdir = None
    time.tzset()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    if collectives := sys.modules.get("habana_frameworks.torch.distributed.hccl"):
        collectives.tell_rank()
    if "HF_ENDPOINT" in environment and (hub := sys.modules.get("huggingface_hub.hf_api")):
        importlib.reload(hub.constants)
        hub.api.endpoint = hub.constants.ENDPOINT
    if environment.get("COVERAGE_PROCESS_START"):
        with contextlib.suppress(ImportError):
            importlib.import_module("coverage").process_startup()


def run(words: list[str]) -> int:
    """Run a module, a command or a script; return the exit code (-2: KeyboardInterrupt)."""
    kind, name = (words.pop(0) if words[0] in ("-m", "-c") else ""), words.pop(0)
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = [kind or name, *words]
    try:
        if kind == "-m":
            sys.path.insert(0, str(Path.cwd()))
            runpy._run_module_as_main(name)
        elif kind == "-c":
            sys.path.insert(0, "")
            exec(compile(name, "<string>", "exec"), main.__dict__)
        else:
            sys.path.insert(0, str(Path(name).resolve().parent))
            main.__file__ = name
            exec(compile(Path(name).read_bytes(), name, "exec"), main.__dict__)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return (ending.code or 0) & 0xFF
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def finish(code: int) -> None:
    """Exit as Python does, without destroying a large heap."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            try:
                stream.flush()
            except OSError:
                code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
