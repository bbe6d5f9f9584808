"""The warm interpreter runs programs as Python does: each test runs a program with both."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm

TELL = """
import json, os, resource, signal, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "name": __name__,
    "environment": dict(os.environ), "umask": os.umask(0o22),
    "affinity": sorted(os.sched_getaffinity(0)), "files": resource.getrlimit(7),
    "ignored": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "input": sys.stdin.read(),
    "bytecode": not sys.dont_write_bytecode, "open": os.read(int(sys.argv[-1]), 9).decode(),
    "main": sorted(name for name in vars(sys.modules["__main__"]) if name[0] != "_"),
}))
"""


def both(*words: str, **options: object) -> list[subprocess.CompletedProcess[str]]:
    """Run a command line with Python and with the warm interpreter."""
    return [
        subprocess.run(
            [python, *words], capture_output=True, text=True, check=False, timeout=300, **options
        )
        for python in (sys.executable, warm.python())
    ]


@pytest.mark.parametrize("form", ["-c", "-m", "script"])
def test_a_program_inherits_the_same_state(tmp_path, form):
    (tmp_path / "tell.py").write_text(TELL)
    script = str(tmp_path / "tell.py")
    words = {"-c": ["-c", TELL], "-m": ["-B", "-m", "tell"], "script": ["-u", script]}[form]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nowhere:/else", "LANG": "C.UTF-8"}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(("LANG", "LC_", "HF_"))}
    told = []
    for python in (sys.executable, warm.python()):
        source, sink = os.pipe()
        os.write(sink, b"inherited")
        done = subprocess.run(
            ["sh", "-c", 'trap "" HUP; ulimit -n 300; umask 27; exec "$@"', "sh", python]
            + [*words, "--word", str(source)],
            cwd=tmp_path,
            env=environment,
            input="typed",
            capture_output=True,
            text=True,
            check=True,
            pass_fds=[source],
        )
        os.close(source)
        os.close(sink)
        told.append(json.loads(done.stdout) | {"number": source})
        told[-1]["argv"].pop()
    assert told[0] == told[1]
    assert (told[1]["open"], told[1]["input"], told[1]["ignored"]) == ("inherited", "typed", True)


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "raise SystemExit(3)",
        "raise SystemExit('a sentence')",
        "1 / 0",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'bye'); print('on')",
        "import threading, time; threading.Timer(0.1, lambda: print(1)).start()",
        "import sys; print(1, file=sys.stderr); print(2)",
    ],
)
def test_a_program_ends_in_the_same_way(code):
    cold, ours = both("-c", code)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )


@pytest.mark.parametrize(("variable", "is_warm"), [("HF_HOME", False), ("FEEDRATE_X", True)])
def test_a_variable_that_libraries_read_at_import_needs_a_new_interpreter(variable, is_warm):
    code = f"import os, sys; print(os.environ[{variable!r}], 'torch' in sys.modules)"
    environment = {**os.environ, variable: "here"}
    _, ours = both("-c", code, env=environment)
    assert ours.stdout == f"here {is_warm}\n"


SLEEPS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 5), (signal.SIGKILL, -9)])
def test_signals_are_forwarded_and_the_program_dies_with_its_client(number, code):
    with subprocess.Popen([warm.python(), "-c", SLEEPS], stdout=subprocess.PIPE) as client:
        program = Path(f"/proc/{int(client.stdout.readline())}")
        client.send_signal(number)
        assert client.wait(30) == code
    end = time.monotonic() + 30
    while program.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not program.exists()
