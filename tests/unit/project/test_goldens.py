"""The golden data of tests/golden that golden/freeze.py writes: its README says what a difference
means."""

import contextlib
import json

import msgspec
import pyarrow.parquet as pq
import pytest

from golden import freeze

RECORDS = [
    f"results/{study}/cpu/records.jsonl"
    for study in ("bridgetower-dataloading", "bridgetower-learning")
]
INTENDED = (
    "if the change is meant: .venv/bin/python tests/golden/freeze.py, and look at what git shows"
)
SENTENCES = {*freeze.PROSE, "reading", "note", "detail", "description"}
"""Columns and keys that hold sentences. Only the numbers in them are compared."""


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def plan():
    return freeze.whole_plan()


def test_every_spec_is_the_same(plan):
    """By study and device: the number of runs and their digest."""
    old, new = read(freeze.DIGESTS), freeze.spec_digests(plan, read(freeze.DEFAULTS))
    assert new.keys() == old.keys()
    differences = {
        f"{study} on {device}": (old[study].get(device), new[study].get(device))
        for study in old
        for device in {**old[study], **new[study]}
        if old[study].get(device) != new[study].get(device)
    }
    assert not differences, INTENDED


@pytest.mark.parametrize("run", read(freeze.EXAMPLES))
def test_examples_of_specs_are_the_same(plan, run):
    usual = read(freeze.DEFAULTS)
    study, device, cell, repeat = run.split("/")
    new = msgspec.to_builtins(plan.runs[study, device, cell, int(repeat)])
    old = read(freeze.EXAMPLES)[run]
    assert freeze.compared(new, usual) == freeze.compared(old, usual), INTENDED


def test_a_spec_names_no_setting_that_is_absent(plan):
    spec = next(iter(plan.runs.values()))
    assert "profile_steps" not in msgspec.to_builtins(spec)["protocol"]
    traced = msgspec.structs.replace(spec.protocol, profile_steps=3)
    traced = msgspec.to_builtins(msgspec.structs.replace(spec, protocol=traced))
    assert msgspec.convert(traced, type(spec)).protocol.profile_steps == 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By golden project, its folder with all made again, and the plans of its studies."""
    roots = {kept: tmp_path_factory.mktemp("golden") / "made" for kept in freeze.PROJECTS}
    return {kept: (root, freeze.make_again(kept, root)) for kept, root in roots.items()}


def assert_same(old, new, where=""):
    """All that `old` holds is in `new`, which may say more."""
    key = where.rpartition(".")[2]
    if isinstance(old, dict):
        kept = old.keys() - {*freeze.REMOVED_COLUMNS}
        assert kept <= new.keys(), where
        for name in kept:
            assert_same(old[name], new[name], f"{where}.{name}")
    elif key == "checks":
        assert_same(*({check["name"]: check for check in checks} for checks in (old, new)), where)
    elif isinstance(old, list):
        assert len(old) == len(new), where
        for one, other in zip(old, new, strict=True):
            assert_same(one, other, where)
    elif key in SENTENCES and isinstance(old, str):
        assert freeze.numbers(old) == freeze.numbers(new), (
            f"{where}: {old!r}, now {new!r}; {INTENDED}"
        )
    else:
        assert freeze.same(old, new), f"{where}: {old!r}, now {new!r}; {INTENDED}"
        assert type(old) is type(new), where


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_the_same(made, name):
    old, new = (
        {(one["cell"], one["repeat"]): one for one in map(json.loads, (root / name).open())}
        for root in (freeze.GOLDEN, made[freeze.GOLDEN][0])
    )
    assert_same(old, new)


def test_parquet_is_the_same(made):
    name = "results/bridgetower-dataloading/results.parquet"
    old, new = (pq.read_table(root / name) for root in (freeze.GOLDEN, made[freeze.GOLDEN][0]))
    old = old.drop_columns([name for name in old.column_names if name in freeze.REMOVED_COLUMNS])
    for field in old.schema:
        other = new.schema.field(field.name)
        assert other.type == field.type
        assert other.metadata[b"unit"] == field.metadata[b"unit"]
    assert_same(old.to_pylist(), new.select(old.column_names).to_pylist())


@pytest.mark.parametrize("name", freeze.RESULT_FILES)
@pytest.mark.parametrize("kept", freeze.PROJECTS, ids=lambda kept: kept.name)
def test_results_are_the_same(made, kept, name):
    root, plans = made[kept]
    files = [f"results/{plan.name}/{name}" for plan in plans]
    files += [f"results/{name}"] if (kept / "results" / name).exists() else []
    found = {file: list(freeze.differences(kept / file, root / file)) for file in files}
    assert not {file: lines for file, lines in found.items() if lines}, INTENDED


@pytest.mark.parametrize("kept", freeze.PROJECTS, ids=lambda kept: kept.name)
def test_reports_show_the_same_numbers(made, kept):
    root, plans = made[kept]
    differences = {}
    with contextlib.chdir(root):
        for plan in plans:
            old = freeze.compared_facts(read(freeze.FACTS / f"{plan.name}.json"))
            new = freeze.compared_facts(freeze.facts_of(plan))
            for fact in old.keys() | new.keys():
                if old.get(fact) != new.get(fact):
                    differences[f"{plan.name}: {fact}"] = (old.get(fact), new.get(fact))
    assert not differences, INTENDED
