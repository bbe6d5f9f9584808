"""Strangers' archives: what is damaged or hostile in them is told in a sentence."""

import json

import msgspec
import pytest

from campaign import STUDY, clone
from feedrate.cli.verify import read_project
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core.errors import ExpectedError


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A configuration as archives hold it."""
    root = clone(tmp_path_factory.mktemp("made") / "project")
    return msgspec.to_builtins(load_project(root, read_yaml(root / "config/config.yaml")))


@pytest.mark.parametrize("table", ["studies", "published", "measured"])
def test_no_name_in_a_project_leads_out_of_the_folder(project, tmp_path, table):
    hostile = {"../../x": {"measured": ["cpu"]}.get(table, project[table].get(STUDY))}
    (tmp_path / "project.json").write_text(json.dumps(project | {table: hostile}))
    with pytest.raises(ExpectedError, match=table):
        read_project(tmp_path, tmp_path / "a.zip")
    hostile = project | {"measured": {STUDY: ["../../x"]}}
    (tmp_path / "project.json").write_text(json.dumps(hostile))
    with pytest.raises(ExpectedError, match="measured"):
        read_project(tmp_path, tmp_path / "a.zip")
