"""The statements of the sources, in docs/sources.md: about things that exist, and complete."""

import csv
import functools
import itertools
import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from docs.make_sources import PAGE, page, read_sources, registered

from feedrate.config.devices import variant
from feedrate.config.project import load_project, study_names
from feedrate.config.values import level_text, read_yaml

ROOT = Path(__file__).resolve().parents[3]
CONFIG = read_yaml(ROOT / "config/config.yaml")
ROWS = [
    (f"{file} rows[{number}]", row)
    for file, source in read_sources().items()
    for number, row in enumerate(source.rows)
]
NAMED = [reference for _, row in ROWS for reference in row.here]
MEASURED = ("claim:", "level:", "study:")
"""The kinds of references that a run can measure."""


def measured(row):
    """The references that a row's command measures: none if it runs nothing, as `make plan`."""
    runs = row.command.startswith("make run")
    return [name for name in row.here if runs and name.startswith(MEASURED)]


@pytest.fixture(scope="module")
def project():
    return load_project(ROOT, CONFIG | {"studies": study_names(ROOT)})


@pytest.fixture(scope="module")
def known(project):
    """Everything that a reference may name."""
    found = {f"study:{name}" for name in project.studies}
    found |= {f"device:{name}" for name in project.devices}
    found |= {*registered()}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found |= {f"command:{name}" for name in re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)}
    for name, study in project.studies.items():
        found |= {f"claim:{name}/{claim.id}" for claim in study.claims}
        for factor, entry in study.factors.items():
            found |= {f"level:{name}/{factor}={level_text(level)}" for level in entry.levels}
    for file in (ROOT / "config/published").glob("*.csv"):
        with file.open(encoding="utf-8", newline="") as stream:
            found |= {f"published:{file.stem}/{row['id']}" for row in csv.DictReader(stream)}
    return found


def unknown(known, reference):
    return not any(fnmatchcase(name, reference) for name in known)


def choices(command, variable):
    """The studies or devices that a command names; without any, those of config.yaml."""
    named = dict(word.partition("=")[::2] for word in shlex.split(command)).get(variable, "")
    return named.split() or CONFIG[{"STUDY": "studies", "DEVICE": "devices"}[variable]]


def entries(devices):
    """The devices, and the entries of the registry that they are a part of."""
    return {*devices} | {device.rpartition("-x")[0] for device in devices}


def possible(project, study, device):
    """The levels that a study has on a device."""
    if device not in project.devices:
        name, _, count = device.rpartition("-x")
        able = variant(name, project.devices, int(count))[1].able
    else:
        able = project.devices[device].able
    factors = project.studies[study].factors
    for combination in itertools.product(*(factor.levels for factor in factors.values())):
        levels = dict(zip(factors, combination, strict=True))
        needed = {factors[name].requires.get(level_text(one)) for name, one in levels.items()}
        left_out = any(one.covers(levels, able) for one in project.studies[study].exclude)
        if not left_out and needed - {None} <= {*able}:
            yield from (f"level:{study}/{name}={level_text(one)}" for name, one in levels.items())


def faults(known, command):
    """What a command names that does not exist."""
    make, *words = shlex.split(command)
    wrong = [] if make == "make" else [make]
    for word in words:
        variable, equals, values = word.partition("=")
        if not equals:
            wrong += [word] if f"command:{word}" not in known else []
        elif variable in ("STUDY", "DEVICE"):
            kind = variable.lower()
            names = [re.sub(r"-x\d+$", "", n) if kind == "device" else n for n in values.split()]
            wrong += [name for name in names if f"{kind}:{name}" not in known]
    return wrong


def test_every_reference_points_at_something(known):
    wrong = [(place, one) for place, row in ROWS for one in row.here if unknown(known, one)]
    assert wrong == []


def test_every_device_that_is_needed_exists(known):
    assert [(p, d) for p, row in ROWS for d in row.needs if f"device:{d}" not in known] == []


def test_every_command_names_targets_studies_and_devices_that_exist(known):
    wrong = {p: faults(known, row.command) for p, row in ROWS if row.command}
    assert {place: names for place, names in wrong.items() if names} == {}


def test_a_command_names_every_device_that_its_row_needs():
    named = {place: entries(choices(row.command, "DEVICE")) for place, row in ROWS}
    wrong = {place: {*row.needs} - named[place] for place, row in ROWS}
    assert {place: devices for place, devices in wrong.items() if devices} == {}


def test_a_row_needs_every_accelerator_that_its_command_runs_on(project):
    run = [(place, row, choices(row.command, "DEVICE")) for place, row in ROWS if measured(row)]
    wrong = [(p, d) for p, row, every in run for d in every if not entries([d]) & {*row.needs}]
    assert [
        (place, device) for place, device in wrong if entries([device]).isdisjoint({"cpu"})
    ] == []


def test_a_command_runs_every_study_that_its_row_references():
    for place, row in ROWS:
        studies = {re.split("[:/]", name)[1] for name in measured(row)}
        assert studies <= {*choices(row.command, "STUDY")}, place


def test_every_level_that_a_row_references_exists_on_each_device_of_its_command(project):
    levels = functools.cache(lambda *names: {*possible(project, *names)})
    for place, row in ROWS:
        for name in (one for one in measured(row) if one.startswith("level:")):
            for device in choices(row.command, "DEVICE"):
                found = levels(re.split("[:/]", name)[1], device)
                assert any(fnmatchcase(one, name) for one in found), (place, name, device)


@pytest.mark.parametrize("kind", ["study", "claim", "published"])
def test_everything_published_claimed_and_studied_has_a_row(known, kind):
    named = [name for name in known if name.startswith(f"{kind}:")]
    missing = [name for name in named if not any(fnmatchcase(name, one) for one in NAMED)]
    assert named
    assert sorted(missing) == []


def test_no_statement_of_a_source_occurs_twice():
    for source in read_sources().values():
        said = [(row.section, row.says) for row in source.rows]
        assert len(said) == len(set(said))


def test_a_statement_that_another_one_repeats_has_one_status():
    """Also where the other one says more, as one of a draft and one of the post may."""
    said = [(place, row.says.lower(), row.status) for place, row in ROWS]
    pairs = [
        (one, two) for one, two in itertools.permutations(said, 2) if two[1].startswith(one[1])
    ]
    assert [(one[0], two[0]) for one, two in pairs if one[2] != two[2]] == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("status: cpu, command: make run", "post.yaml rows[0]: status cpu requires here"),
        ("status: device, here: [a], command: make run", "status device requires needs"),
        ("status: unknown", "rows[0]: 'unknown'"),
        ("status: cpu, state: cpu", "unexpected keyword argument 'state'"),
    ],
)
def test_a_wrong_row_is_an_error_with_file_row_and_key(tmp_path, row, message):
    (tmp_path / "post.yaml").write_text(f"title: x\nrows: [{{section: a, says: b, {row}}}]\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_sources(tmp_path)


def test_the_page_has_all_statements_of_the_data():
    written = PAGE.read_text(encoding="utf-8")
    assert page(written) == written, "run python docs/make_sources.py"
