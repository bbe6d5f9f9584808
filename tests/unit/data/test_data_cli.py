import errno
from pathlib import Path

import pytest

from feedrate.config.errors import ConfigError
from feedrate.data.manifest import DataError, run_command

OUT = Path("some/raw/index.json")


def failing(error):
    def work():
        raise error

    return work


def test_what_was_done_is_printed(capsys):
    assert run_command("feedrate.x", lambda: "done", OUT) == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConfigError("a.yaml: x"), "a.yaml: x"),
        (DataError("no data"), "no data"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x/y"),
            "the disk is full at /x/y: free",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full at some/raw: free"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: permission denied"),
    ],
)
def test_what_a_user_can_cause_is_one_sentence(capsys, error, says):
    assert run_command("feedrate.x", failing(error), OUT) == 1
    written = capsys.readouterr()
    assert says in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""


def test_an_interrupt_ends_quietly(capsys):
    assert run_command("feedrate.x", failing(KeyboardInterrupt()), OUT) == 130
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_program_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        run_command("feedrate.x", failing(ZeroDivisionError()), OUT)
