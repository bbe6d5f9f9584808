"""The tables of a study, from results that the real stages made and from golden runs."""

import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from report_samples import EVIL, RATES, configured, golden, make_project, write_results

from feedrate.config.study import SourceProtocol
from feedrate.core import plugins
from feedrate.jobs.events import Step
from feedrate.report import html, remarks, sentences, text
from feedrate.report.remarks import source_rate
from feedrate.report.scores import scored
from feedrate.report.sentences import tail
from feedrate.report.study import Trace
from feedrate.report.table import PACKAGE, Column, Field, Table, all_tables
from feedrate.results.record import Check

OWN = [name for name in plugins.names(PACKAGE) if plugins.home(PACKAGE, name) == PACKAGE]
TABLES = {table.name: table for name in OWN for table in plugins.load(PACKAGE, name).TABLES}
GOLDEN = ("bridgetower-inference", "flava-scaling", "vit-speedups", "gaudi-accelerations")


def lines(study, name):
    """The rows of a table by their headings: the fields by the heads of their columns."""
    shown = TABLES[name].shown(study)
    if shown is None:
        return {}
    return {
        line.heading.text: dict(zip(shown.heads[1:], line.fields, strict=False))
        for line in shown.lines
    }


def texts(study, name, heading):
    return {head: field.text for head, field in lines(study, name)[heading].items()}


def test_the_register_has_at_most_eleven_tables_in_the_order_of_their_places():
    assert len(TABLES) <= 11
    places = [table.place for table in all_tables()]
    assert places == sorted(places)
    assert len({table.name for table in all_tables()}) == len(places)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_its_columns_and_escapes_texts(study, name):
    shown = TABLES[name].shown(study)
    if shown is None:
        return
    for line in shown.lines:
        wanted = 1 if line.wide else len(shown.heads) - 1
        assert len(line.fields) in (0, wanted)
    page = html.render("table.html.j2", title=shown.title, shown=shown)
    assert "<script>alert" not in page
    assert page.count("{{") == page.count("{{ 7 * 7 }}")


@pytest.mark.parametrize("name", GOLDEN)
def test_a_study_has_the_one_table_of_the_first_screen_that_it_asks_for(name):
    study = golden(name)
    asked = {"speed": "settings", "latency": "latency", "largest": "largest"}[study.asks]
    answers = [table for table in TABLES.values() if table.part == "answer"]
    shown = [table.name for table in answers if table.shown(study)]
    assert shown == [asked]


def test_optional_columns_without_any_value_are_left_out():
    columns = [Column("A", "a"), Column("B", "b", text.number, optional=True)]
    rows = [SimpleNamespace(a="1", b=None), SimpleNamespace(a="2", b=None)]
    table = Table("t", "T", "why", 1, lambda _: rows, lambda _: columns)
    assert table.shown(None).heads == ["A"]
    rows[1].b = 3.0
    assert table.shown(None).heads == ["A", "B"]
    assert table._replace(rows=lambda _: []).shown(None) is None


# The first screen


def test_settings_show_the_rate_the_gain_and_what_is_left(study):
    rows = TABLES["settings"].shown(study)
    assert [line.heading.text for line in rows.lines] == ["0", "1", "2", "16"]
    assert [line.use for line in rows.lines] == [False, True, False, False]
    row = {
        head: field.text for head, field in zip(rows.heads[1:], rows.lines[1].fields, strict=True)
    }
    assert re.fullmatch(r"14\.1 ±0\.\d\d", row["Samples/s"])
    assert row["Of the model alone"] == "95%", "14.1 of 14.8"
    assert re.fullmatch(r"\+26% \(2\d to 3\d%\)", row["Gain, drift removed"])
    assert row["Still to gain"] == "3 to 7%", "14.8 / 14.1, by 2% either way"
    assert row["Limit"] == "computing"
    assert texts(study, "settings", "0")["Limit"] == "data loading"
    assert texts(study, "settings", "0")["Gain, drift removed"] == "the baseline"


def test_cells_without_a_rate_say_why_and_disturbed_ones_are_provisional(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = {("cpu", 2): "invalid", ("cpu", 16): "out_of_memory"}
    study = write_results(tmp_path, make_project(), bad=bad, cause=EVIL)
    shown = {line.heading.text: line for line in TABLES["settings"].shown(study).lines}
    provisional = shown["2"].fields[-1]
    assert (provisional.text, provisional.provisional) == ("14.3", True)
    assert {field.text for field in shown["2"].fields[1:4]} == {text.DASH}, "it is in no ratio"
    assert shown["2"].fields[0].text, "what is known of its limit is no dash"
    assert shown["16"].wide
    assert shown["16"].fields[0].text == "out of memory"
    assert EVIL in shown["16"].fields[0].notes


def test_several_devices_have_a_heading_each_and_at_most_eight_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("report_samples.RATES", {n: 10.0 + n for n in range(12)})
    study = write_results(tmp_path, make_project(("cpu", "h100"), levels=range(12)))
    shown = TABLES["settings"].shown(study)
    headings = [line.heading.text for line in shown.lines]
    groups = " ".join(headings).split("H100")
    assert headings[0] == "CPU"
    assert [group.split()[-8:] for group in groups] == [["0", *map(str, range(5, 12))]] * 2


def test_few_passes_show_the_slowest_and_no_99th_percentile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def edit(record):
        measurement = replace(record.measurement, step_time_p99_s=None)
        return replace(record, measurement=measurement)

    study = write_results(tmp_path, make_project(), edit=edit)
    cell = study.cell("cpu", {"workers": 1, "decode": "host"})
    runs = study.runs_of(cell)
    slowest_s, what = tail(study, cell)
    assert slowest_s == max(2.0 * run.batch_size / run.samples_per_s for run in runs)
    assert str(sum(run.steps * (run.world_size or 1) for run in runs)) in what


def test_the_largest_that_fits_is_the_last_with_a_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(asks="largest", ladder=["workers"])
    study = write_results(tmp_path, project, bad={("cpu", 16): "out_of_memory"})
    row = texts(study, "largest", "host")
    assert row["Largest data-loader workers that fits"] == "2"
    assert row["Its memory"] == "1.21 GiB"
    assert "Fastest data-loader workers of the row" not in row, "the largest is the fastest"
    assert row["Out of memory"] == "16"
    nothing = write_results(
        tmp_path, project, bad={("cpu", workers): "out_of_memory" for workers in RATES}
    )
    assert texts(nothing, "largest", "host")["Largest data-loader workers that fits"] == text.DASH


def test_a_ladder_names_the_largest_and_the_one_to_use_for_speed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(("gaudi2",), asks="largest", ladder=["workers"])
    full = {("gaudi2", 16): "out_of_memory"}
    study = write_results(tmp_path, project, bad=full)
    (answer,) = sentences.answers(study)
    last, use = answer.cells
    tried = [cell for cell in study.tried if cell.samples_per_s]
    assert last.levels["workers"] == max(cell.levels["workers"] for cell in tried)
    assert study.is_choice(use)
    assert use != last
    assert text.number(use.samples_per_s) in answer.text


def test_scores_are_means_over_repeats_beside_chance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_results(tmp_path, make_project(asks="learning", levels=(1,)))
    after, guesses = (lines(study, "scores")[name] for name in ("After training", "By guessing"))
    score = after["Right caption of five"]
    assert (score.text, *score.notes) == ("52%", "before 22%", "20 to 40")
    assert guesses["Right caption of five"] == Field("20%", ["100 answers"])
    assert guesses["Word order, both"].text == "17%"
    assert after["Samples/s"].text.startswith(text.number(RATES[1]))
    assert TABLES["settings"].shown(study) is None


def test_scores_of_several_settings_have_a_row_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_results(tmp_path, make_project(asks="learning", levels=(0, 2)))
    rows = lines(study, "scores")
    assert list(rows) == ["0", "2", "By guessing"]
    assert rows["2"]["Right caption of five"].text == "52%"


def test_runs_that_a_check_rejects_have_no_score_but_disturbed_ones_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def edit(record):
        wrong = [Check(name="decode_path", passed=False, detail="another path")]
        broken = record.repeat == 3
        return replace(record, status="invalid", checks=wrong) if broken else record

    project = make_project(asks="learning", levels=(0, 1))
    study = write_results(tmp_path, project, bad={("cpu", 1): "invalid"}, edit=edit)
    rows = (texts(study, "scores", name) for name in ("0", "1"))
    assert {row["Right caption of five"] for row in rows} == {"52%"}
    assert scored(study)[0].scores["matching_accuracy"].after == pytest.approx(0.515)
    assert scored(study)[1].scores["matching_accuracy"].after == pytest.approx(0.515)


def test_a_study_about_learning_without_scores_shows_its_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unscored = write_results(
        tmp_path, make_project(asks="learning"), edit=lambda record: replace(record, scores=[])
    )
    assert TABLES["scores"].shown(unscored) is None
    assert len(lines(unscored, "settings")) == 4


# The source


def test_claims_without_data_are_one_row_except_that_of_the_first_screen(study):
    rows = lines(study, "source")
    claim = rows["2 workers against none on H100"]
    assert claim["Printed"].text == f"{text.TIMES}1.79"
    assert (claim["By its own table"].text, *claim["By its own table"].notes) == (
        f"{text.TIMES}1.79",
        "agrees",
    )
    assert "Gaudi2" in rows["1 more"]["Printed"].text
    own = rows[f"2 workers are no slower than none {EVIL}"]
    assert own["Measured here"].text.startswith(f"{text.TIMES}1.28 (1.2")
    assert "holds" in own["Verdict"].text
    assert list(rows)[-1] == f"2 workers are no slower than none {EVIL}", "our questions are last"


def test_a_claim_about_two_devices_names_both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_results(tmp_path, make_project())
    (own,) = (claim for claim in study.claims if claim.of == "ours")
    study.claims = [replace(own, device="cpu;gaudi2")]
    assert lines(study, "source")[own.statement]["Measured here"].notes == ["CPU and Gaudi2"]


def test_printed_ratios_without_numbers_of_the_source_agree_with_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_results(tmp_path, replace(make_project(), published={"loading": []}))
    assert not any(lines(study, "source")["1 more"]["Printed"].notes)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, "-98% against the source"), ({"precision": "fp16"}, "other precision")],
)
def test_a_rate_of_the_same_device_has_a_ratio_or_what_is_in_its_way(
    tmp_path, monkeypatch, changes, verdict
):
    monkeypatch.chdir(tmp_path)

    def edit(record):
        train = replace(record.spec.settings.train, **changes)
        settings = replace(record.spec.settings, train=train)
        return replace(record, spec=replace(record.spec, settings=settings))

    study = write_results(tmp_path, make_project(("gaudi2",)), edit=edit)
    row = texts(study, "source", "Gaudi2, workers = 2")
    assert row["Printed"] == "768.7"
    assert row["Measured here"].startswith("14.3")
    assert row["Verdict"] == verdict


def test_the_audit_has_contradictions_and_changes_first_and_each_number_by_edition():
    shown = TABLES["audit"].shown(configured("bridgetower-dataloading"))
    first = [line.fields[0].text for line in shown.lines if line.wide]
    assert len(first) == 4 + 5
    assert all(line.wide for line in shown.lines[:9])
    mfu, against = shown.heads.index("MFU") - 1, shown.heads.index("Against the edition before") - 1
    start = next(i for i, line in enumerate(shown.lines) if "workers = 1, dec" in line.heading.text)
    editions = list(shown.lines[start + 1 : start + 4])
    assert [line.heading.text for line in editions] == ["draft", "2023-06b", "2023-08"]
    assert [line.fields[against].text for line in editions] == [text.DASH, "-6%", "+17%"]
    assert [line.fields[mfu].text for line in editions] == ["29%", "28%", "32%"]


# All cells


def test_unsupported_and_shared_settings_are_one_row_for_each_cause(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_results(tmp_path, make_project(("cpu", "gaudi2")))
    rows = lines(study, "cells")
    unsupported = rows["CPU, 4 settings"]["Samples/s"]
    assert unsupported.text == "among workers = 0, 1, 2 and 16, decode = device"
    assert "decode device" in unsupported.notes[0]
    assert rows["Gaudi2, 3 settings"]["Samples/s"].notes[0].startswith("Same runs as 0, device")


def test_losses_are_compared_with_the_baseline():
    fields = lines(golden("vit-speedups"), "cells")
    notes = {name: row["Loss at the end"].notes[0] for name, row in fields.items() if len(row) > 1}
    assert "bit for bit" in notes["multi-tensor"]
    assert notes["amp-bf16"].startswith("less than 0.001 against the baseline; seeds ")


def test_stages_that_are_not_known_apart_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def joined(record):
        return replace(record, stages=replace(record.stages, resize_s=0.2, not_split=["decode"]))

    row = texts(write_results(tmp_path, make_project(), edit=joined), "stages", "1")
    assert (row["Resize"], row["Decode"]) == ("200 ms", "not split")


def test_scaling_has_the_settings_of_a_family_by_the_number_of_devices(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(("h100", "h100-x1"))
    one = replace(project.devices["h100"], count=1, variant_of="h100", label="H100, one")
    project = replace(project, devices={**project.devices, "h100-x1": one})
    study = write_results(tmp_path, project)
    shown = TABLES["scaling"].shown(study)
    assert [line.heading.text for line in shown.lines[1:3]] == ["1", "8"]
    assert shown.lines[0].heading.text == "H100, workers = 0, decode = host, batch 48"
    assert TABLES["scaling"].shown(golden("vit-speedups")) is None


# Windows and data


@pytest.mark.parametrize(
    ("protocol", "rate"),
    [
        (SourceProtocol(), 8 * 6 / 15),
        (SourceProtocol(warmup_steps=1), 8 * 5 / 5),
        (SourceProtocol(warmup_steps=1, epochs=1), 8 * 3 / 3),
        (SourceProtocol(warmup_steps=6), None),
    ],
)
def test_the_source_s_window_goes_from_its_warm_up_to_the_end_of_its_epochs(protocol, rate):
    steps = [
        Step(rank=0, step=number, step_s=10.0 if number == 1 else 1.0, data_wait_s=0.0, samples=4)
        for number in range(1, 7)
    ]
    run = SimpleNamespace(steps_per_epoch=4, world_size=2)
    assert source_rate(Trace(run, steps), protocol) == rate


def test_the_window_of_a_source_with_a_protocol_is_compared_with_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = make_project().studies["loading"].source
    source = replace(source, protocol=SourceProtocol(warmup_steps=1))
    study = write_results(tmp_path, make_project(source=source))
    (words,) = [one.text for one in remarks.remarks(study) if "1 step left out" in one.text]
    assert "-15% to +11%" in words, "8 samples in 0.65 s are 12.3 a second"
    assert texts(study, "cells", "1")["The Trainer's own rate"] == "13.7"
    assert not any("left out" in one.text for one in remarks.remarks(golden("vit-speedups")))


def test_the_data_have_sizes_and_the_files_left_out(study):
    rows = lines(study, "data")
    assert rows["Width (px)"]["Value"].text == "900 in the median (600 to 1,200)"
    assert rows[f"images/{EVIL}.jpg"]["Value"].text == "truncated"
    assert "seed 20" in rows["Source"]["Value"].text
    assert rows["Left out"]["Value"].text == "2 of 542 images; 1,002 of 1,600 rows"


def test_a_table_without_a_data_report_is_left_out():
    assert TABLES["data"].shown(configured("bridgetower-quality")) is None
