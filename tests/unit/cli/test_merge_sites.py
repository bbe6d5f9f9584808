"""Results of several sites side by side."""

import json
import re
import shutil
import zipfile
from contextlib import ExitStack

import pytest
import yaml
from msgspec.structs import replace

from campaign import STUDY, campaign, edit
from feedrate import __main__ as entry
from feedrate.cli.merge import Site, differing, read_site
from feedrate.config.plan import protocols
from feedrate.config.values import read_yaml
from feedrate.results.columns import CELLS, RUNS
from feedrate.results.files import read_csv
from feedrate.results.record import read_record


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Two archives of one campaign at two sites: another torch and firmware, a day later."""
    folder = tmp_path_factory.mktemp("sites")
    firmware = ('"packages":', '"firmware": {"microcode": "0x2b"}, "packages":')
    north = campaign(folder / "north", event=firmware)
    south = campaign(
        folder / "south",
        events=('"torch": "2.13.0+cpu"', '"torch": "2.12.1+cpu"'),
        event=(firmware[0], firmware[1].replace("0x2b", "0x2c")),
        outcome=("2026-11-22T", "2026-11-23T"),
    )
    with pytest.MonkeyPatch.context() as patch:
        for root in (north, south):
            patch.chdir(root)
            assert entry.main(["archive", "--out", f"../{root.name}.zip"]) == 0
    return folder


@pytest.fixture(scope="module")
def together(sites):
    """The folder of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(sites / "north")
        words = ["../north.zip", "south=../south.zip", "--out", "../both"]
        assert entry.main(["merge", *words]) == 0
    return sites / "both"


def test_one_device_of_two_sites_appears_twice(together):
    runs = read_csv(together / "results/results.csv", RUNS)
    by_device = {
        name: [row["samples_per_s"] for row in runs if row["device"] == name]
        for name in ("cpu", "cpu-south")
    }
    assert by_device["cpu"] == by_device["cpu-south"]
    assert len(runs) == 2 * len(by_device["cpu"]) > 20
    cells = read_csv(together / f"results/{STUDY}/cells.csv", CELLS)
    assert {row["device"] for row in cells} == {"cpu", "cpu-south"}


def test_pages_show_both_and_what_differs(together):
    table = (together / f"results/{STUDY}/tables/cells.html").read_text()
    assert "(north)" in table
    assert "(south)" in table
    page = (together / "results/overview.html").read_text()
    sites = page[page.index(">Sites<") :]
    assert "2.12.1+cpu" in sites
    assert "0x2b" in sites
    assert "0x2c" in sites
    assert "2.13.0+cpu" in sites
    assert "cores granted" not in sites


def test_versions_and_protocols_are_shown_even_if_they_agree(together):
    page = (together / "results/overview.html").read_text()
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", page[page.index(">Sites<") :])
    texts = [re.sub("<.*?>", " ", row).split() for row in rows]
    assert ["schema", "version", "1", "1"] in texts
    heads = {tuple(text[:3]) for text in texts}
    assert {(STUDY, "source", "digest"), ("cpu", "packages.torch", "2.13.0+cpu")} <= heads
    assert STUDY in {text[0] for text in texts if text[1] == "protocol"}


def test_facts_are_short_and_none_is_of_a_single_run(together):
    record = read_record(next(together.rglob("record.json")))

    def site(name, commit, memory, jobs):
        told = {"commit": commit, "host_memory_gib": memory}
        machine = {"other_training_jobs": jobs}
        made = replace(record.provenance, machine_before=machine, **told)
        records = {("a", "cpu", "b", 1): replace(record, provenance=made)}
        return Site(name, together / "none", None, None, records, {})

    found = differing([site("a", "a" * 40, 23.5405, 1), site("b", f"{'b' * 40}-dirty", 23.5401, 2)])
    told = {what: values for _, what, *values in found}
    assert told["commit"] == ["a" * 12, f"{'b' * 12}-dirty"]
    assert not [what for what in told if "memory" in what or "training jobs" in what]


def test_a_folder_counts_with_its_runs_whatever_its_configuration_says(
    sites, tmp_path, monkeypatch
):
    """They were made with --study, --device and --config, which its config.yaml does not know."""
    other = tmp_path / "other"
    shutil.copytree(sites / "south", other)
    cell = other / f"results/{STUDY}/cpu/workers=2~decode=reference~strategy=ddp"
    shutil.copytree(cell / "rep3", cell / "rep4")
    edit(other, "rep4/record.json", '"repeat": 3', '"repeat": 4')
    edit(other, "record.json", '"steps": 46', '"steps": 45')
    config = other / "config/config.yaml"
    plain = {"studies": ["bridgetower-learning"], "devices": ["h100"], "repeats": 1}
    config.write_text(yaml.safe_dump(read_yaml(config) | plain))
    with ExitStack() as stack:
        site = read_site(f"other={other}", stack)
    assert len(site.plan.runs) == len(site.records) == 4 * 3 + 1
    assert {key[:2] for key in site.plan.runs} == {(STUDY, "cpu")}
    assert {spec.protocol.steps for spec in site.plan.runs.values()} == {45}
    assert protocols(site.project)[STUDY]["cpu"].repeats == 4
    monkeypatch.chdir(sites / "north")
    words = ["../north.zip", f"other={other}", "--out", str(tmp_path / "both")]
    assert entry.main(["merge", *words]) == 0
    runs = read_csv(tmp_path / "both/results/results.csv", RUNS)
    mine = [row for row in runs if row["device"] == "cpu-other"]
    assert sum(row["status"] != "unsupported" for row in mine) == len(site.records)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [((46, 46, 45), [1, 2]), ((45, 46, 46), [2, 3]), ((45, 45, 45), [1, 2, 3])],
)
def test_a_run_that_another_configuration_left_is_left_out_and_named(
    sites, tmp_path, monkeypatch, capsys, steps, kept
):
    """The plan, of 46 steps, tells which of a cell's runs are leftovers, else the lowest repeat."""
    other = shutil.copytree(sites / "south", tmp_path / "other")
    cell = "workers=2~decode=reference~strategy=ddp"
    for repeat, timed in enumerate(steps, 1):
        edit(other, f"{cell}/rep{repeat}/record.json", '"steps": 46', f'"steps": {timed}')
    edit(other, f"{cell}/rep2/record.json", '"seed": ', '"seed": 1')
    monkeypatch.chdir(sites / "north")
    capsys.readouterr()
    words = ["../north.zip", f"other={other}", "--out", str(tmp_path / "both")]
    assert entry.main(["merge", *words]) == 0
    named = re.findall(rf"left out: {STUDY} cpu {cell} rep (\d) of other", capsys.readouterr().out)
    runs = read_csv(tmp_path / "both/results/results.csv", RUNS)
    own = [r["repeat"] for r in runs if (r["device"], r["cell"]) == ("cpu-other", cell)]
    assert own == kept
    assert {*map(int, named)} == {1, 2, 3} - {*kept}


def test_runs_of_two_archives_are_refused_if_they_are_the_same(sites, monkeypatch, capsys):
    monkeypatch.chdir(sites / "north")
    capsys.readouterr()
    assert entry.main(["merge", "a=../north.zip", "b=.", "--out", "../twice"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("feedrate: the same runs in two sites:\n")
    assert f"{STUDY} cpu workers=0~decode=reference~strategy=ddp 1 in a and b" in err
    assert not (sites / "twice").exists()


def test_the_data_are_described_as_the_first_site_has_them(sites, together, tmp_path, monkeypatch):
    monkeypatch.chdir(sites / "north")
    other = shutil.copytree(sites / "south", tmp_path / "other")
    (report,) = (other / "resources/datasets").glob("*/prepared/data_report.json")
    report.write_text(report.read_text().replace("0", "1"))
    assert entry.main(["merge", "../north.zip", str(other), "--out", str(tmp_path / "both")]) == 0
    file = report.relative_to(other)
    assert (tmp_path / "both" / file).read_bytes() == (together / file).read_bytes()


def test_a_study_with_other_factors_is_refused(sites, tmp_path, monkeypatch, capsys):
    with zipfile.ZipFile(sites / "south.zip") as found:
        found.extractall(tmp_path / "odd")
    file = tmp_path / "odd/project.json"
    project = json.loads(file.read_text())
    project["studies"][STUDY]["baseline"]["workers"] = 1
    file.write_text(json.dumps(project))
    monkeypatch.chdir(sites / "north")
    assert entry.main(["merge", "../north.zip", str(tmp_path / "odd"), "--out", "../odd"]) == 1
    assert f"the study {STUDY} has other factors or baselines" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["../north.zip"], "one site"),
        (["../north.zip", "../north.zip"], "two sites are called north"),
        (["../north.zip", "x y=../south.zip"], "'x y' is not allowed as a site's name"),
        (["../north.zip", "../none.zip"], "there is no such file"),
        (["../north.zip", "../both"], None),
    ],
)
def test_wrong_calls_are_told_in_a_sentence(sites, words, why, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(sites / "north")
    out = sites if why is None else tmp_path / "new"
    assert entry.main(["merge", *words, "--out", str(out)]) in (1, 2)
    assert (why or "not allowed; it exists") in capsys.readouterr().err
