"""A campaign is archived without secrets, and reported from its runs; several become one report."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from campaign import ROOT, STUDY, campaign
from feedrate import __main__ as entry
from feedrate.cli import report
from feedrate.core.files import digest_file
from feedrate.results.files import CELLS, RUNS, read_csv

RUN = f"runs/{STUDY}/cpu/workers=2~decode=reference~strategy=ddp/rep1-0a1b2c3d"
DERIVED = ("results/cells.csv", f"results/{STUDY}/tables/cells.html", "report.html")
TOKENS = {
    "hf_AbCdEfGhIjKlMnOpQrSt": "hf_AbCdEf",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSF",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUt",
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567": "0123456789abcdef01234567",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v\n": "b3BlbnNzaC1r",
    "the value of a variable": "the value of a variable",
}


def with_files(run):
    """Add the digests of a run's files to its outcome."""
    outcome = json.loads((run / "outcome.json").read_text())
    names = [str(file.relative_to(run)) for file in run.rglob("*.*")]
    outcome["files"] = {n: digest_file(run / n) for n in names if n != "outcome.json"}
    (run / "outcome.json").write_text(json.dumps(outcome))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A campaign with its report, and its archive."""
    root = campaign(tmp_path_factory.mktemp("made") / "project")
    (root / RUN / "model").mkdir()
    (root / RUN / "model/weights.safetensors").write_bytes(b"weights")
    for run in root.glob("runs/*/*/*/*"):
        with_files(run)
    other = (root / RUN).with_name("rep1-99999999")  # of an earlier configuration
    shutil.copytree(root / RUN, other)
    outcome = (other / "outcome.json").read_text().replace("2026-", "2025-")
    (other / "outcome.json").write_text(outcome)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert entry.main(["report", "."]) == 0
        assert entry.main(["archive", "--out", "campaign.zip"]) == 0
    return root


@pytest.fixture
def unpacked(made, tmp_path, monkeypatch):
    """The archive, unpacked next to a clone, which is the working directory."""
    monkeypatch.chdir(made)
    with zipfile.ZipFile("campaign.zip") as archive:
        archive.extractall(tmp_path / "there")
    return tmp_path / "there"


def test_an_archive_has_runs_configuration_results_and_checksums(unpacked):
    names = {str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()}
    listed = {line.split("  ")[1] for line in (unpacked / "SHA256SUMS").read_text().splitlines()}
    assert names == listed | {"SHA256SUMS"}
    assert {f"{RUN}/spec.json", f"{RUN}/events.jsonl", f"{RUN}/train.log", *DERIVED} <= names
    assert {"config/devices.yaml", f"config/studies/{STUDY}.yaml"} <= names
    assert [name for name in names if name.endswith("data_report.json")]
    assert not [name for name in names if "model/" in name or "/." in name or "-9999" in name]


def test_a_report_of_an_archive_has_the_same_results_and_pages(unpacked, made, capsys):
    for file in DERIVED:
        (unpacked / file).unlink()
    outcome = unpacked / RUN / "outcome.json"
    outcome.write_text((content := outcome.read_text()) + " ")
    assert entry.main(["report", str(unpacked)]) == 1
    out = capsys.readouterr().out
    assert "results/cells.csv differs from its checksum in SHA256SUMS" in out
    assert f"{RUN}/outcome.json differs from its checksum in SHA256SUMS" in out
    outcome.write_text(content)
    for file in DERIVED:
        assert (unpacked / file).read_bytes() == (made / file).read_bytes()
    assert entry.main(["report", str(unpacked)]) == 0
    statuses = [row["status"] for row in read_csv(unpacked / "results/results.csv", RUNS)]
    assert statuses.count("ok") > 0


def test_no_secret_is_in_an_archive(made, tmp_path, monkeypatch, capsys):
    root = shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(root)
    monkeypatch.setenv("HF_TOKEN", "the value of a variable")
    log = root / RUN / "train.log"
    log.write_text(log.read_text() + "\n".join(TOKENS))
    with_files(root / RUN)
    (root / RUN / "trainer/secret.dat").write_bytes(b"\0\xffhf_AbCdEfGhIjKlMnOpQrSt")
    (root / "report.html").write_text("hf_AbCdEfGhIjKlMnOpQrSt")
    assert entry.main(["archive", "--out", "clean.zip"]) == 0
    assert f"left out: {RUN}/trainer/secret.dat" in capsys.readouterr().out
    with zipfile.ZipFile("clean.zip") as archive:
        content = b"".join(map(archive.read, archive.namelist()))
        assert "report.html" in archive.namelist()
        archive.extractall("there")
    assert [secret for secret in TOKENS.values() if secret.encode() in content] == []
    assert entry.main(["report", "there"]) == 0
    statuses = [
        [row["status"] for row in read_csv(folder / "results/results.csv", RUNS)]
        for folder in (made, root / "there")
    ]
    assert statuses[0] == statuses[1]  # the digests in outcomes are those of the clean files


def test_a_log_that_was_changed_before_stays_wrong(made, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "project"))
    for log in Path().glob(f"{RUN}/train.log"):
        log.write_text("another log")
    assert entry.main(["archive", "--out", "x.zip"]) == 0
    with zipfile.ZipFile("x.zip") as archive:
        archive.extractall("there")
    assert entry.main(["report", "there"]) == 0
    rows = read_csv(Path("there/results/results.csv"), RUNS)
    assert [row["folder"] for row in rows if "logs_unchanged" in row["failed_checks"]] == [RUN]


def test_two_sites_become_one_report(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made)
    shutil.copytree(made, tmp_path / "south")
    out = tmp_path / "both"
    assert entry.main(["report", f"north={made}", str(tmp_path / "south"), "--out", str(out)]) == 0
    for name, columns in (("results.csv", RUNS), ("cells.csv", CELLS)):
        rows = read_csv(out / "results" / name, columns)
        assert {(row["device"], row["site"]) for row in rows} == {
            ("cpu", "north"),
            ("cpu-south", "south"),
        }
        rates = [
            [row["samples_per_s"] for row in rows if row["site"] == site]
            for site in ("north", "south")
        ]
        assert rates[0] == rates[1] != []
    page = (out / "report.html").read_text()
    assert "(north)" in page
    assert "(south)" in page
    assert "(north) (south)" not in page, "a label has its own site alone"


def test_runs_of_another_configuration_are_left_out(made, tmp_path, monkeypatch, capsys):
    root = shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(root)
    cell = (root / RUN).parent
    shutil.copytree(cell, cell.with_name("workers=99~decode=reference~strategy=ddp"))
    rows = (root / "results/cells.csv").read_text()
    assert entry.main(["report", "."]) == 0
    assert "left out: " in capsys.readouterr().out
    assert (root / "results/cells.csv").read_text() == rows


def test_a_newer_run_with_other_settings_does_not_hide_the_planned_one(made, tmp_path, monkeypatch):
    root = shutil.copytree(made, tmp_path / "project")
    monkeypatch.chdir(root)
    rows = (root / "results/cells.csv").read_text()
    newer = shutil.copytree(root / RUN, (root / RUN).with_name("rep1-ffffffff"))
    spec = json.loads((newer / "spec.json").read_text())
    spec["protocol"]["steps"] -= 1
    (newer / "spec.json").write_text(json.dumps(spec))
    outcome = json.loads((newer / "outcome.json").read_text())
    outcome["started_at"] = "2099-01-01T00:00:00Z"
    (newer / "outcome.json").write_text(json.dumps(outcome))
    assert entry.main(["report", "."]) == 0
    assert (root / "results/cells.csv").read_text() == rows


def test_studies_have_the_order_of_the_configuration_not_that_of_their_runs(tmp_path):
    root = campaign(tmp_path / "project")
    later = "bridgetower-learning"
    shutil.copytree(ROOT / f"tests/golden/runs/{later}", root / f"runs/{later}")
    config = root / "config/config.yaml"
    config.write_text(config.read_text().replace(f"[{STUDY}]", f"[{STUDY}, {later}]"))
    assert entry.main(["report", str(root)]) == 0
    page = (root / "report.html").read_text()
    assert -1 < page.index(f'id="{STUDY}"') < page.index(f'id="{later}"')


def test_the_data_of_a_site_are_those_that_its_runs_read(tmp_path):
    """Not those of another dataset, or of a later version of it."""
    runs = []
    for identity in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        prepared = Path(f"resources/datasets/own/prepared-{identity}")
        (tmp_path / prepared).mkdir(parents=True)
        (tmp_path / prepared / "data_report.json").write_text("{}")
        runs.append(tmp_path / "runs" / identity)
        runs[-1].mkdir(parents=True)
        command = f"python -m feedrate train --data {prepared}/manifest.json --out x"
        (runs[-1] / "outcome.json").write_text(json.dumps({"command": command}))
    shutil.rmtree(tmp_path / "resources/datasets/own/prepared-aaaaaaaa")
    found = report.data_report(tmp_path, runs)
    assert found == "resources/datasets/own/prepared-bbbbbbbb/data_report.json"
    assert report.data_report(tmp_path, runs[:1]) == ""


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("archive --out x.tar", 2, "--out x.tar: not allowed; the name of an archive ends in .zip"),
        ("report nowhere", 2, "nowhere: neither a clone nor an unpacked archive"),
        ("report . .", 2, "several sites need --out FOLDER"),
        ("report . --out x", 2, "several sites need --out FOLDER"),
        ("report . . --out x", 2, "two sites have the same name"),
        ("report a/b=. . --out x", 2, "site 'a/b': not allowed; use letters, digits and _ . + -"),
        ("report . . --out config", 2, "--out config: not allowed; it exists"),
        ("report .", 1, "there is no run of a known study in runs/"),
        ("archive --out x.zip", 1, "results/ has no study; first call `python -m feedrate report`"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, monkeypatch, capsys, command, code, message):
    monkeypatch.chdir(campaign(tmp_path / "project"))
    shutil.rmtree("results")
    shutil.rmtree("runs")
    assert entry.main(command.split()) == code
    assert message in (error := capsys.readouterr().err)
    assert len(error.splitlines()) == 1
