"""JSON schemas: in step with the types, strict, and of one mind with the checks."""

from functools import cache

import jsonschema
import msgspec
import pytest
from docs import make_schemas as schemas

from feedrate.config.project import Devices
from feedrate.config.study import Study
from feedrate.config.values import read_yaml
from feedrate.config.workflow import WorkflowConfig

STUDY = "config/studies/bridgetower-dataloading.yaml"


@cache
def validator(name):
    return jsonschema.Draft202012Validator(schemas.schema(name))


def valid(name, value):
    return validator(name).is_valid(value)


def test_the_files_are_what_the_types_say():
    assert schemas.stale() == {}
    assert schemas.main(["--check"]) == 0


def objects(schema):
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


@pytest.mark.parametrize("name", schemas.KINDS)
def test_schemas_are_sound_and_closed(name):
    schema = schemas.schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = list(objects(schema))
    assert found
    assert all(part.get("additionalProperties") is False for part in found)


@pytest.mark.parametrize(
    ("name", "file"),
    [("config", "config/config.yaml"), ("devices", "config/devices.yaml"), ("study", STUDY)],
)
def test_the_projects_own_files_fit_and_name_their_schema(root, name, file):
    assert valid(name, read_yaml(root / file))
    first = (root / file).read_text(encoding="utf-8").splitlines()[0]
    mark, _, target = first.partition("$schema=")
    assert mark == "# yaml-language-server: "
    assert ((root / file).parent / target).resolve() == schemas.path(name)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"loader": {"max_token": 3}}},
        {"settings": {"train": {"precision": "fp64"}}},
        {"bundles": {"technique": {"all": 3}}},
        {"protocol": {"steps": 0}},
        {"step": 3},
    ],
)
def test_editors_see_mistakes_in_adapt_too(root, change):
    study = read_yaml(root / STUDY)
    study["adapt"]["cpu"] = change
    assert not valid("study", study)


def fits(value, kind):
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def test_the_types_and_the_schemas_agree(root):
    """What one refuses the other refuses: no schema of our own making is laxer or stricter."""
    kinds = {"config": WorkflowConfig, "devices": Devices, "study": Study}
    files = {"config": "config/config.yaml", "devices": "config/devices.yaml", "study": STUDY}
    for name, kind in kinds.items():
        value = read_yaml(root / files[name])
        for key in value:
            for wrong in (None, 3, "x", [], {}, {"x": 1}, [None]):
                changed = {**value, key: wrong}
                if name == "study" and key == "adapt":
                    continue
                assert valid(name, changed) == fits(changed, kind), (key, wrong)
