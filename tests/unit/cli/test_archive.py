"""A campaign is archived, checked and made again; every change is reported."""

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import rocrate
from pyarrow.parquet import read_table
from rocrate.rocrate import ROCrate

from campaign import ROOT, STUDY, campaign, clone, rewrite
from feedrate import __main__ as entry
from feedrate.cli.redraw import measured
from feedrate.cli.verify import differences
from feedrate.config import plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml, subset
from feedrate.core import paths
from feedrate.results.collect import unsupported_row
from feedrate.results.columns import RUNS, for_studies
from feedrate.results.crate import CHECKSUMS
from feedrate.results.files import read_csv, write_csv

RUN = f"results/{STUDY}/cpu/workers=2~decode=reference~strategy=ddp/rep1"
RECORD = f"{RUN}/record.json"
TOKENS = {
    "hugging face": "hf_AbCdEfGhIjKlMnOpQrSt",
    "aws id": "AKIAIOSFODNN7EXAMPLE",
    "aws": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "wandb": "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "netrc": "machine api.wandb.ai login user password 89abcdef0123456789abcdef0123456789abcdef",
    "ssh": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v\n"
    "-----END OPENSSH PRIVATE KEY-----",
}
SECRETS = (
    *("hf_AbCdEf", "AKIAIOSF", "wJalrXUt", "0123456789abcdef01234567", "89abcdef01234567"),
    "b3BlbnNzaC1r",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A campaign with secrets in its logs."""
    return campaign(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture(scope="module")
def archived(made):
    """Its archive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        assert entry.main(["archive", "--out", "campaign.zip"]) == 0
    return made / "campaign.zip"


def verify(root, monkeypatch, capsys, archive, *words):
    monkeypatch.chdir(root)
    capsys.readouterr()
    code = entry.main(["verify", str(archive), *map(str, words)])
    return code, capsys.readouterr()


def with_checksums(archive: Path, out: Path, changes: dict[str, bytes]) -> Path:
    """The archive with changes whose checksums fit."""
    with zipfile.ZipFile(archive) as found:
        lines = found.read(CHECKSUMS).decode().splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    sums |= {name: hashlib.sha256(content).hexdigest() for name, content in changes.items()}
    text = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    return rewrite(archive, out, {**changes, CHECKSUMS: text.encode()})


def test_a_fresh_clone_with_an_empty_home_verifies_it(archived, tmp_path):
    root, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    command = [sys.executable, "-m", "feedrate", "verify", str(archived), "--keep", "again"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "verified: nothing differs", done.stdout + done.stderr
    assert done.returncode == 0
    page = f"results/{STUDY}/tables/cells.html"
    assert (root / "again" / page).read_text() == (archived.parent / page).read_text()


def test_it_is_verified_where_its_loader_library_is_not_installed(archived, monkeypatch, capsys):
    """The campaign of loader-claims once lost 26 of its 70 runs on a machine without libraries."""
    monkeypatch.setattr(plan, "missing_packages", lambda *_: "pip install it")
    code, told = verify(archived.parent, monkeypatch, capsys, archived)
    assert (code, "made again" in told.out) == (0, False), told.out


@pytest.mark.parametrize("here", ["", "pip install it"])
def test_what_was_installed_there_makes_a_cell_unsupported(tmp_path, monkeypatch, here):
    """One library was removed after its run, another was never there; all or none are here."""
    study = "loader-claims"
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    config = read_yaml(Path("config/config.yaml")) | {"studies": [study], "devices": ["cpu"]}
    project = load_project(tmp_path, config)
    planned = plan.make_plan(project)
    of = {spec.levels["loader"]: spec for spec in planned.runs.values()}
    ran, never = of["spdl"], of["webdataset"]
    record = paths.run_dir(study, "cpu", ran.cell, 1) / paths.RECORD_NAME
    record.parent.mkdir(parents=True)
    record.touch()
    cell = subset(plan.Unsupported, never, lacks="webdataset", install="pip install webdataset")
    rows = [unsupported_row(one) for one in (*planned.unsupported, cell)]
    columns = for_studies(RUNS, project.studies)
    write_csv(Path(paths.RESULTS_CSV.format(study=study)), columns, rows)
    monkeypatch.setattr(plan, "missing_packages", lambda *_: here)
    _, kept = measured(project)
    assert [key[2] for key in kept.runs] == [ran.cell]
    assert [unsupported_row(one) for one in kept.unsupported] == rows


def test_ro_crate_py_reads_it(archived):
    crate = ROCrate(archived)
    assert STUDY in crate.name
    record = crate.dereference(RECORD)
    with zipfile.ZipFile(archived) as found:
        names = set(found.namelist())
        assert record["sha256"] == hashlib.sha256(found.read(RECORD)).hexdigest()
    described = {e.id for e in crate.data_entities}
    assert described | {"ro-crate-metadata.json"} == names
    assert {"project.json", "environment.json", f"{RUN}/spec.json", f"{RUN}/train.log"} <= names
    assert not [name for name in names if Path(name).name.startswith(".")]


def test_it_meets_all_that_ro_crates_require(archived, tmp_path, monkeypatch):
    validator = pytest.importorskip("rocrate_validator.services")
    context = (Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text()

    def answer(url, **_options):
        """The context of RO-Crate 1.3, which has the words of 1.1 and comes with ro-crate-py."""
        kind = {"Content-Type": "application/ld+json"}
        read = partial(json.loads, context)
        return SimpleNamespace(status_code=200, headers=kind, text=context, json=read)

    def method(_self, name):
        if name not in ("get", "head"):
            raise AttributeError(name)
        return answer

    monkeypatch.setattr("rocrate_validator.utils.http.HttpRequester.__getattr__", method)
    asked = {"profile_identifier": "ro-crate-1.1", "requirement_severity": "REQUIRED"}
    found = validator.validate({"rocrate_uri": archived, "cache_path": tmp_path / "cache"} | asked)
    assert [issue.message for issue in found.get_issues()] == []
    assert found.passed()


def test_equal_campaigns_give_equal_bytes(made, archived, monkeypatch):
    monkeypatch.chdir(made)
    for file in (made / "results").rglob("*.csv"):
        os.utime(file, (0, 0))
    assert entry.main(["archive", "--out", "second.zip"]) == 0
    assert (made / "second.zip").read_bytes() == archived.read_bytes()


def test_missing_altered_and_extra_files_are_told(archived, tmp_path, monkeypatch, capsys):
    changes = {f"{RUN}/train.log": None, f"{RUN}/events.jsonl": b"{}\n", "results/more.csv": b"a\n"}
    broken = rewrite(archived, tmp_path / "broken.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, broken)
    assert code == 1
    assert f"{RUN}/train.log is missing: it is listed in checksums.sha256." in told.out
    assert f"{RUN}/events.jsonl was altered" in told.out
    assert "results/more.csv is extra" in told.out


def test_control_characters_of_a_stranger_are_shown_as_escapes(
    archived, tmp_path, monkeypatch, capsys
):
    changes = {"results/\x1b[2Jx\u202e.csv": b"a\n", "project.json": b'{"\\u001b[2J\\ud800": 1}'}
    hostile = rewrite(archived, tmp_path / "hostile.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, hostile)
    assert (code, told.err) == (1, "")
    assert "results/\\x1b[2Jx\\u202e.csv is extra" in told.out
    assert all(c.isprintable() for line in told.out.splitlines() for c in line)


def test_what_stops_the_making_hides_no_defect(archived, tmp_path, monkeypatch, capsys):
    changes = {"project.json": b"[" * 100_000, f"{RUN}/train.log": b"other"}
    broken = rewrite(archived, tmp_path / "broken.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, broken)
    assert (code, told.err) == (1, "")
    assert f"{RUN}/train.log was altered" in told.out
    monkeypatch.setattr("feedrate.cli.verify.make_again", lambda *_: 1 / 0)
    broken = rewrite(archived, tmp_path / "broken2.zip", {f"{RUN}/train.log": b"other"})
    code, told = verify(archived.parent, monkeypatch, capsys, broken)
    assert f"{RUN}/train.log was altered" in told.out
    assert "ZeroDivisionError" in told.out


def test_a_record_that_its_events_do_not_give_is_told_though_checksums_fit(
    archived, tmp_path, monkeypatch, capsys
):
    with zipfile.ZipFile(archived) as found:
        record = json.loads(found.read(RECORD))
        events = found.read(f"{RUN}/events.jsonl")
    true = record["measurement"]["samples_per_s"]
    record["measurement"]["samples_per_s"] = 2 * true
    changes = {RECORD: json.dumps(record).encode(), f"{RUN}/events.jsonl": events}
    forged = with_checksums(archived, tmp_path / "forged.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, forged)
    assert code == 1
    assert "no defects in files" in told.out
    line = f"{RECORD}: measurement.samples_per_s: {2 * true} in the archive, {true} made again"
    assert line in told.out.splitlines()


def test_events_that_give_other_numbers_are_told(archived, tmp_path, monkeypatch, capsys):
    with zipfile.ZipFile(archived) as found:
        events = found.read(f"{RUN}/events.jsonl").decode().splitlines()
    slower = [json.loads(line) for line in events]
    for event in slower:
        if event["event"] in ("step", "window"):
            event |= {key: 2 * event[key] for key in ("step_s", "wall_s") if key in event}
    content = "".join(json.dumps(event) + "\n" for event in slower).encode()
    changed = with_checksums(archived, tmp_path / "changed.zip", {f"{RUN}/events.jsonl": content})
    code, told = verify(archived.parent, monkeypatch, capsys, changed)
    assert code == 1
    assert f"{RECORD} was made from events.jsonl, which differs from that in the" in told.out
    assert f"{RECORD}: measurement.samples_per_s:" in told.out
    assert f"results/{STUDY}/results.csv: row" in told.out
    assert f"results/{STUDY}/tables/cells.html: line" in told.out


def test_scores_of_a_run_that_failed_are_told(archived, tmp_path, monkeypatch, capsys):
    kept = ROOT / "tests/golden/results/bridgetower-learning/cpu/decode=host/rep1/quality.json"
    with zipfile.ZipFile(archived) as found:
        outcome = json.loads(found.read(f"{RUN}/outcome.json")) | {"status": "failed"}
    changes = {f"{RUN}/quality.json": kept.read_bytes()}
    scored = with_checksums(archived, tmp_path / "scored.zip", changes)
    _, told = verify(archived.parent, monkeypatch, capsys, scored)
    assert "taken as they are, because scoring needs the weights: 1 quality.json" in told.out
    monkeypatch.setattr("feedrate.cli.verify.make_again", lambda *_: None)
    monkeypatch.setattr("feedrate.cli.verify.differences", lambda *_: ())
    changes |= {f"{RUN}/outcome.json": json.dumps(outcome).encode()}
    failed = with_checksums(archived, tmp_path / "failed.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, failed)
    assert code == 1
    assert f"{RUN}/quality.json has scores, but its run did not end well." in told.out
    changes |= {f"{RUN}/outcome.json": b"{"}
    damaged = with_checksums(archived, tmp_path / "damaged.zip", changes)
    code, told = verify(archived.parent, monkeypatch, capsys, damaged)
    assert code == 1
    assert f"{RUN}/outcome.json: " in told.out


@pytest.fixture(scope="module")
def leaky(made, tmp_path_factory):
    """The campaign with secrets and names in it, archived with --scrub."""
    root = shutil.copytree(made, tmp_path_factory.mktemp("leaky") / "project")
    log = root / RUN / "train.log"
    log.write_text(log.read_text() + "\n".join(TOKENS.values()) + "\nfrom /home/alice/feedrate\n")
    (root / RUN / "trainer/secret.bin.dat").write_bytes(b"\0\xff" + TOKENS["hugging face"].encode())
    (root / "report.html").write_text(TOKENS["hugging face"])
    record = json.loads((root / RECORD).read_text())
    record["made_from"]["files"]["train.log"] = hashlib.sha256(log.read_bytes()).hexdigest()
    (root / RECORD).write_text(json.dumps(record))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert entry.main(["archive", "--out", "plain.zip"]) == 0
        assert entry.main(["archive", "--out", "scrubbed.zip", "--scrub"]) == 0
    return root


@pytest.mark.parametrize("name", ["plain.zip", "scrubbed.zip"])
def test_no_secret_is_in_an_archive(leaky, name):
    with zipfile.ZipFile(leaky / name) as found:
        content = b"".join(found.read(one) for one in found.namelist())
        assert f"{RUN}/trainer/secret.bin.dat" not in found.namelist()
        assert "report.html" not in found.namelist()
    assert [secret for secret in SECRETS if secret.encode() in content] == []


def test_names_of_hosts_and_users_are_scrubbed_everywhere(leaky):
    with zipfile.ZipFile(leaky / "plain.zip") as found:
        assert '"host": "vm"' in found.read(f"{RUN}/events.jsonl").decode()
    with zipfile.ZipFile(leaky / "scrubbed.zip") as found:
        names = " ".join(found.namelist())
        texts = [found.read(one).decode(errors="replace") for one in found.namelist()]
        rows = found.read(f"results/{STUDY}/results.csv")
        parquet = found.read("results/results.parquet")
    assert "_vm" not in names
    for text in texts:  # what pages unpack too
        for packed in re.findall('data-packed="([^"]*)"', text):
            texts.append(zlib.decompress(base64.b64decode(packed)).decode())
    assert [text for text in texts if '"host": "vm"' in text or "alice" in text] == []
    (leaky / "rows.parquet").write_bytes(parquet)
    hosts = {row["host"] for row in read_table(leaky / "rows.parquet").to_pylist()}
    assert "vm" not in hosts
    (leaky / "rows.csv").write_bytes(rows)
    hosts = {row["host"] for row in read_csv(leaky / "rows.csv", RUNS)}
    assert all(host.startswith("host") for host in hosts if host)


def test_a_scrubbed_archive_still_follows_from_its_events(leaky, monkeypatch, capsys):
    code, told = verify(leaky, monkeypatch, capsys, leaky / "scrubbed.zip")
    assert (code, told.out.splitlines()[-1]) == (0, "verified: nothing differs")


def test_a_log_that_changed_after_its_record_is_not_cleaned(again, capsys):
    log = again / RUN / "train.log"
    log.write_text(f"{log.read_text()}\nfrom /home/alice/pictures\n")
    assert entry.main(["archive", "--out", "new.zip", "--scrub"]) == 1
    assert f"{RUN}/train.log has changed since its record was made" in capsys.readouterr().err
    assert not Path("new.zip").exists()


def test_events_that_would_be_no_json_without_their_secrets_are_refused(again, capsys):
    events = again / RUN / "events.rank1.jsonl"
    ends = [f"-----{end} RSA PRIVATE KEY-----" for end in ("BEGIN", "END")]
    events.write_text("".join(f"{json.dumps({'message': end})}\n" for end in ends))
    assert entry.main(["archive", "--out", "new.zip"]) == 1
    assert capsys.readouterr().err.startswith(f"feedrate: {RUN}/events.rank1.jsonl: without")
    assert not Path("new.zip").exists()


def test_a_result_that_is_not_in_the_archive_is_told(archived, tmp_path, monkeypatch, capsys):
    name = "results/claims.csv"
    fewer = with_checksums(archived, tmp_path / "fewer.zip", {})
    with zipfile.ZipFile(fewer) as found:
        sums = found.read(CHECKSUMS).decode().splitlines()
    kept = "".join(f"{line}\n" for line in sums if not line.endswith(f"  {name}"))
    fewer = rewrite(fewer, tmp_path / "fewer2.zip", {name: None, CHECKSUMS: kept.encode()})
    code, told = verify(archived.parent, monkeypatch, capsys, fewer)
    assert code == 1
    assert f"{name}: among the files made again, but not in the archive" in told.out


@pytest.fixture
def again(made, tmp_path, monkeypatch):
    """A copy of the campaign, to be changed."""
    root = shutil.copytree(made, tmp_path / "again")
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("word", ["train", "data", "warmup"])
def test_a_name_that_files_need_as_a_word_is_not_scrubbed(again, capsys, word):
    log = again / RUN / "train.log"
    log.write_text(f"{log.read_text()}\nfrom /home/{word}/pictures\n")
    assert entry.main(["archive", "--out", "new.zip", "--scrub"]) == 1
    assert f"the name {word!r} of a host or user is also a word" in capsys.readouterr().err
    assert not Path("new.zip").exists()


@pytest.mark.parametrize("damage", [b"no gzip", gzip.compress(b"{}" * 99, mtime=0)[:-9]])
def test_a_trace_that_nobody_can_unpack_is_left_out_with_a_word(again, capsys, damage):
    (again / RUN / paths.TRACE_NAME).write_bytes(damage)
    assert entry.main(["archive", "--out", "new.zip"]) == 0
    assert f"left out: {RUN}/{paths.TRACE_NAME} is damaged" in capsys.readouterr().out
    with zipfile.ZipFile("new.zip") as found:
        assert f"{RUN}/{paths.TRACE_NAME}" not in found.namelist()
        assert f"{RUN}/spec.json" in found.namelist()


def test_merged_cells_that_are_no_table_are_named(again, capsys):
    (again / "results/cells.csv").write_bytes(b"study\n\xff\n")
    assert entry.main(["archive", "--out", "new.zip"]) == 1
    assert "feedrate: results/cells.csv, line " in capsys.readouterr().err


def test_merged_cells_that_name_no_study_are_made_again(again):
    (again / "results/cells.csv").write_text("a,b\n1,2\n")
    assert entry.main(["archive", "--out", "new.zip"]) == 0
    with zipfile.ZipFile("new.zip") as found:
        assert found.read("results/cells.csv").startswith(b"study,")


def test_runs_of_another_configuration_are_told(again, capsys):
    shutil.copytree(again / RUN, (again / RUN).with_name("rep9"))
    assert entry.main(["archive", "--out", "new.zip"]) == 0
    assert f"left out: 1 run of {STUDY} that this configuration" in capsys.readouterr().out
    with zipfile.ZipFile("new.zip") as found:
        assert not [name for name in found.namelist() if "rep9" in name]


@pytest.mark.parametrize("flags", [[], ["--scrub"]])
def test_no_archive_shows_settings_that_its_runs_do_not_have(again, capsys, flags):
    study = again / f"config/studies/{STUDY}.yaml"
    study.write_text(study.read_text().replace("steps: 46", "steps: 60"))
    assert entry.main(["archive", "--out", "new.zip", *flags]) == 1
    assert f"12 runs of {STUDY} were made with other settings" in capsys.readouterr().err
    assert not Path("new.zip").exists()


def test_without_runs_there_is_nothing_to_archive(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(clone(tmp_path / "clone"))
    assert entry.main(["archive", "--out", "none.zip"]) == 1
    assert capsys.readouterr().err == "feedrate: there is no record of a planned run in results/\n"
    assert not Path("none.zip").exists()


def test_archives_are_compared(archived, monkeypatch, capsys):
    monkeypatch.chdir(archived.parent)
    assert entry.main(["compare", str(archived), str(archived)]) == 0
    out = capsys.readouterr().out
    assert f"Before: {archived}, " in out
    assert "not known, because" not in out


def test_a_row_that_is_missing_is_one_line_and_moves_no_other(tmp_path):
    old = [{"study": "s", "cell": cell, "value": number} for number, cell in enumerate("aabc")]
    for name, rows in (("given", old), ("made", old[1:])):
        folder = tmp_path / name / "results"
        folder.mkdir(parents=True)
        lines = [",".join(map(str, row.values())) for row in rows]
        (folder / "cells.csv").write_text("\n".join(["study,cell,value", *lines]) + "\n")
    told = list(differences(tmp_path / "given", tmp_path / "made"))
    assert told == [
        "results/cells.csv: row of s a, 2: in the archive, but not made again",
        "results/cells.csv: row of s a value: 0 in the archive, 1 made again",
    ]


def test_merged_results_of_another_selection_are_made_again(made, tmp_path, monkeypatch, capsys):
    root = shutil.copytree(made, tmp_path / "project")
    merged = root / "results/cells.csv"
    right = merged.read_text()
    merged.write_text(right.replace(f"{STUDY},", "another-study,"))
    monkeypatch.chdir(root)
    assert entry.main(["archive", "--out", "other.zip"]) == 0
    capsys.readouterr()
    with zipfile.ZipFile("other.zip") as found:
        assert found.read("results/cells.csv").decode() == right
