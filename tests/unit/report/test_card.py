"""The card of a kept model: metadata for the hub, and text that stays intact whatever it shows."""

import json

import msgspec
import pytest
from huggingface_hub import ModelCard
from record_builder import make_record, make_spec

from feedrate.cli import jobs
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.data.winoground import Winoground
from feedrate.report.card import card
from feedrate.report.params import CardSettings, to_param
from feedrate.report.text import DASH
from feedrate.results.record import Quality, RecordError, Score, read_quality, write_record
from feedrate.results.schema import Provenance

EVIL = "a | b\n# no: `heading` <script>alert(1)</script> --- : \"quoted\" 'so' [x](y) *z*"
HUB = {
    "title": "BridgeTower trained",
    "device": "A CPU",
    "base_model": "BridgeTower/bridgetower-large-itm-mlm-itc",
    "dataset": "jmhessel/newyorker_caption_contest",
    "dataset_revision": "d81cbab7",
    "repository": "me/models",
    "place": "loading/cpu/workers=0~decode=host",
}


def settings(**changes):
    return CardSettings(**(HUB | changes))


def local(**changes):
    nothing = dict.fromkeys(("base_model", "dataset", "dataset_revision", "repository"))
    return settings(**(nothing | changes))


def score(moment="after", on="test", metric="image_to_text_recall_at_1", value=0.25, **more):
    found = {"low": 0.2, "high": 0.3, "n": 60} if value is not None else {}
    return Score(moment=moment, on=on, metric=metric, value=value, **(found | more))


def quality(*scores, **changes):
    values = {"status": "ok", "winoground": "generated", "scores": list(scores)}
    return Quality(**(values | changes))


BEFORE_AND_AFTER = (score("before", value=0.02), score("after", value=0.25))


def provenance(record):
    told = Provenance(
        commit="c0ffee",
        data_digest="d" * 64,
        spec_digest="e" * 64,
        source_digest="f" * 64,
        host="secret-node-7",
        device_model="a cpu",
        packages={"torch": "2.13.0", "transformers": "5.23.0", "numpy": "2"},
        python="3.11.9",
    )
    return msgspec.structs.replace(record, provenance=told)


def made(chosen=None, spec=None, scores=BEFORE_AND_AFTER, **changes):
    record = provenance(make_record(spec=spec, **changes))
    return card(chosen or settings(), record.spec, record, quality(*scores))


def read(text):
    """The card as the hub's own library reads it back."""
    return ModelCard(text)


def section(text, heading):
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_hub_finds_base_model_data_and_scores():
    data = read(made()).data
    assert data.base_model == HUB["base_model"]
    assert data.datasets == [HUB["dataset"]]
    assert data.library_name == "transformers"
    assert data.pipeline_tag is None  # the hub has no name for BridgeTower's task
    assert data.tags == ["feedrate", "bridgetower"]
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value) == ("image_to_text_recall_at_1", 0.25)
    assert (result.dataset_type, result.dataset_split) == (HUB["dataset"], "test")
    assert result.dataset_revision == "d81cbab7"


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("clip", "zero-shot-image-classification"),
        ("vit", "image-classification"),
        ("swin", "image-classification"),
    ],
)
def test_models_carry_the_hubs_name_of_their_task_where_it_has_one(name, tag):
    spec = make_spec(settings=Settings(model=ModelSettings(name=name, size="tiny")))
    assert read(made(spec=spec)).data.pipeline_tag == tag


def test_local_weights_and_data_are_not_attributed_to_the_hub():
    text = made(local())
    data = read(text).data
    assert (data.base_model, data.datasets) == (None, None)
    assert data.eval_results[0].dataset_type == "generated"
    assert "trained from random weights on A CPU" in text


@pytest.mark.parametrize(
    ("source", "origin", "commit", "name"),
    [
        ("generated", None, None, "winoground-stand-in"),
        ("folder", None, None, "winoground (local copy)"),
        ("hub", "facebook/winoground", "4d3c2b1a", "facebook/winoground"),
        ("hub", "me/winoground-at-home", "f" * 40, "me/winoground-at-home"),
    ],
)
def test_the_copy_of_winoground_is_named(source, origin, commit, name):
    copy = Winoground(
        name="mine", source=source, origin=origin, revision=commit, examples=[], sha256={}
    )
    record = provenance(make_record())
    wino = score(on="winoground", metric="group_score", head="contrastive")
    scored = quality(wino, winoground=copy.described)  # as scoring writes it
    (result,) = read(card(settings(), record.spec, record, scored)).data.eval_results
    assert (result.dataset_type, result.dataset_name) == (name, name)
    assert result.dataset_revision == commit
    assert "contrastive head" in result.metric_name


def test_scores_before_and_after_are_in_one_row_with_intervals():
    without = score("after", "winoground", "text_score", None, head="matching", note="no | head")
    text = section(made(scores=(*BEFORE_AND_AFTER, without)), "Scores")
    assert (
        "| test | image to text recall at 1 | 0.02000 (0.2000 to 0.3000) | "
        "0.2500 (0.2000 to 0.3000) |"
    ) in text
    assert rf"| winoground | text score, matching head | {DASH} | not scored: no \| head |" in text


def test_a_metric_that_was_not_scored_is_not_in_the_metadata():
    nothing = score(value=None, note="no head")
    assert read(made(scores=(nothing,))).data.eval_results is None
    assert read(made(scores=(score("before"),))).data.eval_results is None


def test_the_card_says_that_scoring_failed():
    record = provenance(make_record())
    failed = Quality(status="failed", cause="out of memory")
    assert "Not scored: out of memory" in card(settings(), record.spec, record, failed)


def test_the_card_has_speed_settings_and_provenance():
    text = made()
    speed = section(text, "Training speed")
    assert "| Throughput (samples/s) | 10.00 |" in speed
    assert "| Window | 10 steps after 2 warm-up steps |" in speed
    trained = section(text, "Training settings")
    assert "| `train.batch_size` | `4` |" in trained
    assert "| `protocol.steps` | `12` |" in trained
    assert "| `seed` | `42` |" in trained
    assert "hpu." not in trained
    assert "`model.checkpoint`" not in trained
    source = text.partition("## Provenance")[2]
    for said in ("commit c0ffee", "d" * 64, "e" * 64, "torch 2.13.0, transformers 5.23.0"):
        assert said in source


def test_a_rejected_speed_says_so():
    text = made(status="invalid", cause="another job ran beside it")
    assert "Rejected by a check: another job ran beside it" in text
    assert "Not measured: out of memory" in made(rate=None, cause="out of memory")


def test_the_card_reveals_neither_hosts_nor_paths_of_the_machine():
    model = ModelSettings(name="bridgetower", size="tiny", checkpoint="/home/someone/weights/bt")
    text = made(local(), make_spec(settings=Settings(model=model)))
    assert "secret-node-7" not in text
    assert "/home/someone" not in text
    assert "trained from local weights, `bt`, on" in text
    assert "| `model.checkpoint` | `bt` |" in text


@pytest.mark.parametrize("chosen", [settings(), local()])
def test_the_loading_code_compiles(chosen):
    text = section(made(chosen), "How to load the model")
    code = text.partition("```python\n")[2].partition("\n```")[0]
    compile(code, "card", "exec")
    assert ("snapshot_download('me/models')" in code) == (chosen.repository is not None)
    assert "BridgeTowerForContrastiveLearning.from_pretrained(folder)" in code


def test_the_loading_code_loads_a_saved_model(tmp_path, tiny_prepared):
    import torch

    from feedrate.models.build import build

    torch.set_num_threads(1)
    spec = make_spec(
        settings=Settings(
            model=ModelSettings(name="bridgetower", size="tiny"),
            loader=LoaderSettings(max_tokens=16),
        )
    )
    built = build(spec.settings.model, spec.settings.loader, tiny_prepared)
    built.model.save_pretrained(tmp_path)
    built.tokenizer.save_pretrained(tmp_path)
    text = section(made(local(), spec), "How to load the model")
    code = text.partition("```python\n")[2].partition("\n```")[0]
    names: dict = {}
    exec(code.replace('"the folder of this card"', repr(str(tmp_path))), names)
    saved = built.model.state_dict()
    for model in (names["built"].model, names["model"]):
        loaded = model.state_dict()
        assert all(torch.equal(saved[key], loaded[key]) for key in saved)


def test_odd_texts_break_neither_yaml_nor_tables():
    chosen = settings(
        title=EVIL, device=EVIL, base_model="o/n: e # x", dataset='"q": [1', repository="a'b\"c"
    )
    scores = (
        *BEFORE_AND_AFTER,
        score(on=EVIL, metric=EVIL, head=EVIL),
        score(on="winoground", value=None, note=EVIL),
    )
    spec = make_spec(dataset="odd", study="a.study")
    record = provenance(make_record(spec=spec, status="invalid", cause=EVIL))
    text = card(chosen, spec, record, quality(*scores, winoground=EVIL))
    data = read(text).data
    assert (data.base_model, data.datasets) == ("o/n: e # x", ['"q": [1'])
    assert {r.metric_type for r in data.eval_results} == {EVIL, "image_to_text_recall_at_1"}
    body = text.partition("\n---\n")[2]
    assert "<script>" not in body
    headings = [line for line in body.splitlines() if line.startswith("#")]
    assert [line for line in headings if not line.startswith(("# With", "# bridgetower"))] == [
        "## Scores",
        "## Training speed",
        "## How to load the model",
        "## Training settings",
        "## Provenance",
    ]
    rows = [line for line in body.splitlines() if line.startswith("|")]
    for line in rows:
        bars = line.replace("\\|", "").count("|")
        assert bars in (3, 5), line


# The command


@pytest.fixture
def run(tmp_path):
    """Run the command over a run's folder, with weights or without; its exit code and files."""

    def run(weights=True, record=None, scores=None):
        model = tmp_path / "trainer/model"
        if weights:
            model.mkdir(parents=True)
            (model / "model.safetensors").write_text("weights")
        write_record(tmp_path / "record.json", record or make_record())
        found = scores or quality(*BEFORE_AND_AFTER)
        (tmp_path / "quality.json").write_bytes(msgspec.json.encode(found))
        arguments = {
            "--settings": str(to_param(local())),
            "--record": str(tmp_path / "record.json"),
            "--quality": str(tmp_path / "quality.json"),
            "--model": str(model),
            "--out": str(tmp_path / "card.md"),
        }
        return jobs.run("write-card", [word for pair in arguments.items() for word in pair])

    return run


def test_a_copy_of_the_card_is_written_next_to_the_weights(run, tmp_path):
    assert run() == 0
    text = (tmp_path / "card.md").read_text()
    assert (tmp_path / "trainer/model/README.md").read_text() == text
    assert read(text).data.model_name == "loading: workers=0~decode=host"


def test_a_run_without_a_model_gets_one_line_instead_of_a_card(run, tmp_path):
    record = make_record(rate=None, status="out_of_memory", cause="it wanted 12 GiB")
    assert run(weights=False, record=record, scores=Quality(status="no_model", cause="no")) == 0
    assert (tmp_path / "card.md").read_text() == ("No model (out of memory): it wanted 12 GiB\n")
    assert not (tmp_path / "trainer").exists()


def test_weights_of_a_run_that_has_no_model_get_no_card(run, tmp_path):
    record = make_record(rate=None, status="failed", cause="its node was lost")
    why = "The run ended with status failed: its node was lost"
    assert run(record=record, scores=Quality(status="no_model", cause=why)) == 0
    assert (tmp_path / "card.md").read_text() == "No model (failed): its node was lost\n"
    assert not (tmp_path / "trainer/model/README.md").exists()


def test_a_broken_file_gives_one_sentence(run, tmp_path, capsys):
    assert run() == 0
    (tmp_path / "quality.json").write_text("{}")
    arguments = ["--settings", str(to_param(local())), "--model", str(tmp_path)]
    files = {"record": "record.json", "quality": "quality.json", "out": "card.md"}
    for name, file in files.items():
        arguments += [f"--{name}", str(tmp_path / file)]
    capsys.readouterr()
    assert jobs.run("write-card", arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"feedrate write-card: {tmp_path}/quality.json: not of this version")
    assert said.count("\n") == 1


def test_quality_of_another_version_is_refused(tmp_path):
    path = tmp_path / "quality.json"
    with pytest.raises(RecordError, match="no such file"):
        read_quality(path)
    path.write_text(json.dumps({"schema": 99, "status": "ok"}))
    with pytest.raises(RecordError, match="schema 99 is not allowed"):
        read_quality(path)
