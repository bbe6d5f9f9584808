from pathlib import Path

import pytest
from report_samples import make_project, write_results

from feedrate.report.rows import Inputs


@pytest.fixture
def project():
    return make_project()


@pytest.fixture
def inputs(tmp_path: Path, project, monkeypatch):
    """Result files where every supported cell is good; records are found from the folder."""
    monkeypatch.chdir(tmp_path)
    return Inputs(write_results(tmp_path, project))
