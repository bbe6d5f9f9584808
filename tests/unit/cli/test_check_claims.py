"""`feedrate check-claims`: what follows from the published data, and planted wrong numbers."""

import csv
import shutil
from pathlib import Path

import pytest

from feedrate import __main__ as entry
from feedrate.cli.check_claims import AGREES, CANNOT, DERIVED, DIFFERS, checks
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.results import audit

ROOT = Path(__file__).resolve().parents[3]
POST, FLAVA = "bridgetower-dataloading", "flava-scaling"


@pytest.fixture
def check(tmp_path):
    """The checks of some studies, with a text of a file of config/ replaced."""
    shutil.copytree(ROOT / "config", tmp_path / "config")

    def check(study, file="config.yaml", old="", new=""):
        path = tmp_path / "config" / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        config = read_yaml(tmp_path / "config/config.yaml") | {"studies": [study]}
        return {one.statement: one for one in checks(load_project(tmp_path, config))}

    return check


def one(found, *words):
    (only,) = [check for text, check in found.items() if all(word in text for word in words)]
    return only


def test_printed_ratios_rates_and_editions(check):
    found = check(POST)
    ratio = one(found, "Gaudi2 at its best against H100")
    assert (ratio.printed, ratio.outcome) == (1.41, AGREES)
    assert ratio.recomputed == pytest.approx(847.7 / 602.1)
    assert ratio.difference == pytest.approx(847.7 / 602.1 / 1.41 - 1)
    timed = one(found, "A100 80GB", "1, reference", "(2023-08)", "seconds timed")
    assert (timed.printed, timed.outcome) == (None, DERIVED)
    assert timed.recomputed == pytest.approx(48960 / 339.7)
    share = one(found, "Gaudi2, 8 devices: 2, device, ddp (2023-08)", "share of the peak in bf16")
    assert share.recomputed == pytest.approx(1.48886e12 * 847.7 / 8 / 432e12, rel=1e-4)
    assert share.outcome == AGREES
    later = one(found, "A100 80GB", "1, reference", "the same in 2023-08 as in 2023-06b")
    assert (later.printed, later.recomputed, later.outcome) == (296.6, 339.7, DIFFERS)


def test_what_is_not_published_cannot_be_recomputed(check):
    found = one(check("gaudi-accelerations"), "Lazy mode is faster")
    assert (found.recomputed, found.difference, found.outcome) == (None, None, CANNOT)


@pytest.mark.parametrize(
    ("file", "old", "new", "statement"),
    [
        (f"studies/{POST}.yaml", "published: 2.23", "published: 2.33", "Gaudi2 against A100 w"),
        (f"published/{POST}.csv", ",345.4,", ",545.4,", "2 workers against none on A100"),
        (f"published/{POST}.csv", ",602.1,", ",16021,", "H100, 8 devices: 2, reference, ddp"),
    ],
)
def test_a_planted_number_differs(check, file, old, new, statement):
    before, after = check(POST), check(POST, file, old, new)
    differ = {text for text, made in after.items() if made.outcome == DIFFERS}
    assert any(text.startswith(statement) for text in differ if before[text].outcome == AGREES)


@pytest.mark.parametrize(
    ("size_gib", "parameters", "outcomes"),
    [("1.33", "350000000", (AGREES, AGREES)), ("1.43", "380000000", (DIFFERS, DIFFERS))],
)
def test_sizes_of_models_are_counted(check, size_gib, parameters, outcomes):
    text = (ROOT / f"config/published/{FLAVA}.csv").read_text(encoding="utf-8")
    head, *rows = text.splitlines()
    rows = [row for row in rows if "size=350M" in row]
    planted = "\n".join([head, *rows]).replace(",1.33,", f",{size_gib},")
    found = check(FLAVA, f"published/{FLAVA}.csv", text, planted.replace("350000000", parameters))
    size, count = one(found, "flava 350M: model size"), one(found, "flava 350M: parameters")
    assert size.recomputed == pytest.approx(357_645_303 * 4 / 2**30)
    assert count.recomputed == 357_645_303
    assert (size.outcome, count.outcome) == outcomes


@pytest.mark.parametrize(
    ("printed", "found", "same"),
    [
        (866e6, 866.6e6, True),  # cut
        (955e6, 866.6e6, False),
        (10.3, 10.27, True),
        (18.1, 18.21, False),
        (10e9, 10.2e9, True),
        (10e9, 12e9, False),
    ],
)
def test_a_count_is_compared_to_the_printed_digits(printed, found, same):
    assert audit.as_printed(found, printed) == same


def test_the_command_prints_a_table_and_writes_the_rows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "rows.csv"
    assert entry.main(["check-claims", "--csv", str(file)]) == 0
    printed = capsys.readouterr().out
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == [
        *("study", "statement", "printed", "recomputed", "outcome", "difference")
    ]
    assert {row["outcome"] for row in rows} == {AGREES, DIFFERS, CANNOT, DERIVED}
    assert all(row["statement"] in printed for row in rows)
    assert f"{len(rows)} statements: " in printed.splitlines()[-1]


def test_memory_is_counted_and_compared_with_what_is_printed(check):
    found = check(FLAVA)
    reduction = one(found, "2.7B, fsdp1-ac-limited", "active memory reduction")
    assert (reduction.printed, reduction.outcome) == (4.0, AGREES)
    assert reduction.recomputed == pytest.approx(4.0, rel=0.1)


def test_a_batch_that_cannot_have_fitted_differs(check):
    assert one(check("vit-speedups"), "huge, baseline", "fits into 39 GiB").outcome == AGREES
    smaller = check("vit-speedups", "devices.yaml", "memory_gib: 40", "memory_gib: 20")
    fits = one(smaller, "huge, baseline", "fits into 19 GiB")
    assert fits.recomputed * 0.9 > 19
    assert fits.outcome == DIFFERS
