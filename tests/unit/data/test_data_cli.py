import errno

import pytest

from feedrate.config.load import ConfigError
from feedrate.data.cli import run_command
from feedrate.data.manifest import DataError


def failing(error):
    def work():
        raise error

    return work


def test_what_was_done_is_printed(capsys):
    assert run_command(lambda: "done") == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConfigError("a.yaml: x"), "a.yaml: x"),
        (DataError("no data"), "no data"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), "the disk is full (/x/y): free"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full: free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "permission denied (/x)"),
    ],
)
def test_what_a_user_can_cause_is_one_sentence(capsys, error, says):
    assert run_command(failing(error)) == 1
    written = capsys.readouterr()
    assert says in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""


def test_an_interrupt_ends_quietly(capsys):
    assert run_command(failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_program_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        run_command(failing(ZeroDivisionError()))
