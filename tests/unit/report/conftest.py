import shutil
from pathlib import Path

import pytest
from report_samples import make_project, write_results

from feedrate.report.rows import Inputs


@pytest.fixture
def project():
    return make_project()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A folder with result files where every supported cell is good, and these files. Copy it."""
    root = tmp_path_factory.mktemp("written")
    return root, write_results(root, make_project())


@pytest.fixture
def inputs(tmp_path: Path, written, monkeypatch):
    """A copy of `written`; records are found from the folder."""
    root, files = written
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Inputs([tmp_path / file.relative_to(root) for file in files])
