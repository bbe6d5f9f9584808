"""Homes that take no caches, and folders in which the workflow cannot run."""

import getpass
import os
import pwd
from pathlib import Path

import pytest

from feedrate.core.errors import ExpectedError
from feedrate.core.files import CACHES, check_project, settle_caches

SETTLED = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_HOME")
USERS = ("LOGNAME", "USER", "LNAME", "USERNAME")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The working directory, in an environment that names neither homes nor users."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "HF_HOME", *SETTLED, *USERS):
        monkeypatch.setenv(name, "")  # so that what a test leaves there is taken away again
        monkeypatch.delenv(name)
    return tmp_path


def unknown(_number):
    raise KeyError


def test_a_home_that_takes_caches_is_left_alone(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project / "home"))
    before = dict(os.environ)
    settle_caches()
    assert dict(os.environ) == before


def test_a_user_without_an_entry_and_a_home_gets_both(project, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    settle_caches()
    assert Path.home() == project / CACHES
    assert getpass.getuser() == str(os.getuid())
    assert {os.environ[name] for name in SETTLED} == {str(project / CACHES)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("HOME", "/proc"), ("XDG_CACHE_HOME", "relative"), ("XDG_CACHE_HOME", "/proc/caches")],
)
def test_a_folder_that_cannot_be_made_is_replaced_and_the_home_kept(
    project, monkeypatch, name, value
):
    monkeypatch.setenv("HOME", str(project / "home"))
    monkeypatch.setenv(name, value)
    home = os.environ["HOME"]
    settle_caches()
    settle_caches()  # a job of this call
    assert os.environ["XDG_CACHE_HOME"] == str(project / CACHES)
    assert os.environ["HOME"] == home


def test_data_of_the_hub_stays_where_it_is_if_its_home_is_full(project, monkeypatch):
    hub = project / "home/.cache/huggingface"
    hub.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(project / "home"))
    (hub.parent / "snakemake").touch()  # nothing can be written below it
    settle_caches()
    assert os.environ["HF_HOME"] == str(hub)


def test_a_folder_that_takes_no_files_is_told_with_what_to_do(project):
    (project / ".snakemake").touch()
    with pytest.raises(ExpectedError, match=r"^/.*: file exists: clone the project to where user"):
        check_project(project)
    (project / ".snakemake").unlink()
    check_project(project)
