import shutil
from pathlib import Path

import pytest
from report_samples import DATA_REPORT_FILE, make_project, write_results

from feedrate.report.rows import Inputs


@pytest.fixture
def project():
    return make_project()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with result files where every supported cell is good. Copy it."""
    root = tmp_path_factory.mktemp("written")
    write_results(root, make_project())
    return root


@pytest.fixture
def inputs(tmp_path: Path, written, monkeypatch):
    """A copy of `written`; the files of runs are found from the folder."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Inputs(tmp_path / "results", DATA_REPORT_FILE)
