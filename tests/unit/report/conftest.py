import shutil
from pathlib import Path

import pytest
from report_samples import make_project, plan_of, write_results

from feedrate.report.study import StudyResults


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
def study(tmp_path: Path, written, monkeypatch) -> StudyResults:
    """A study of a copy of `written`, which is the working folder."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return StudyResults(plan_of(make_project()), tmp_path / "results")
