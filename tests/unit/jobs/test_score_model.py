"""Models scored before and after training: real ones, and as small as they come."""

import math
import shutil

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from models_kept import keep_model, make_spec, with_choices

from feedrate.config.workflow import GeneratedExamples
from feedrate.core.files import write_json
from feedrate.data.winoground import fetch_winoground
from feedrate.jobs import scores as splits
from feedrate.jobs.score_model import score_model
from feedrate.models.build import ModelError

RETRIEVAL = {
    f"{way}_recall_at_{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def prepared(tiny_prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality") / "prepared"
    shutil.copytree(tiny_prepared, folder)
    with_choices(folder)
    return folder


def by_moment(answer, *, on="test"):
    found = {"before": {}, "after": {}}
    for score in answer["scores"]:
        if score["on"] == on:
            found[score["moment"]][score["metric"]] = score
    return found["before"], found["after"]


def values(scores):
    return {metric: score["value"] for metric, score in scores.items()}


@pytest.mark.parametrize(
    ("name", "precision"),
    [("bridgetower", "fp32"), ("bridgetower", "bf16"), ("clip", "bf16_full")],
)
def test_untrained_weights_score_the_same_before_and_after(name, precision, prepared, tmp_path):
    spec = make_spec(name, precision)
    answer = score_model(spec, prepared, keep_model(spec, prepared, tmp_path), None)
    before, after = by_moment(answer)
    assert before.keys() == after.keys() == RETRIEVAL | {"contrastive_loss", "matching_accuracy"}
    assert values(before) == values(after)
    assert {score["gain"] for score in after.values()} == {0.0}
    assert answer["winoground"] == ""
    for score in answer["scores"]:
        if score["low"] is not None:
            assert score["low"] <= score["value"] <= score["high"]
    assert {score["on"] for score in answer["scores"]} == {"validation", "test"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "generated"),
        ({"source": "folder", "name": "mine"}, "folder (mine)"),
        ({"source": "hub", "origin": "me/copy", "revision": "4d3"}, "hub (me/copy at 4d3)"),
    ],
)
def test_the_answer_says_which_copy_of_winoground_was_scored(changes, said, prepared, tmp_path):
    examples = tmp_path / "winoground/examples.json"
    found = fetch_winoground("generated", GeneratedExamples(examples=1), examples, workers=1)
    write_json(examples, msgspec.to_builtins(msgspec.structs.replace(found, **changes)))
    spec = make_spec("clip")
    weights = keep_model(spec, prepared, tmp_path)
    assert score_model(spec, prepared, weights, examples)["winoground"] == said


def test_other_weights_score_otherwise(prepared, tmp_path):
    spec = make_spec()
    before, after = by_moment(
        score_model(spec, prepared, keep_model(spec, prepared, tmp_path, seed=8), None)
    )
    assert before["contrastive_loss"]["value"] != after["contrastive_loss"]["value"]
    for metric, score in after.items():
        assert score["gain"] == pytest.approx(score["value"] - before[metric]["value"], abs=1e-6)
        assert metric == "contrastive_loss" or score["gain_low"] <= score["gain"]


def test_figures_say_what_they_are_means_over(prepared, tmp_path):
    spec = make_spec()
    answer = score_model(spec, prepared, keep_model(spec, prepared, tmp_path), None)
    _, after = by_moment(answer, on="validation")  # 7 rows of 4 images
    assert after["image_to_text_recall_at_1"]["n"] == 4
    assert after["text_to_image_recall_at_1"]["n"] == 7
    assert after["text_to_image_recall_at_1"]["chance"] == pytest.approx(1 / 4)
    assert after["text_to_image_recall_at_5"]["value"] == 1.0  # there are but four images
    assert after["matching_accuracy"]["chance"] == pytest.approx(1 / 5)
    assert after["contrastive_loss"]["chance"] == pytest.approx(math.log(7))
    assert after["contrastive_loss"]["low"] is None  # one batch


def test_the_loss_is_of_whole_batches(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(splits, "BATCH", 3)
    spec = make_spec()
    answer = score_model(spec, prepared, keep_model(spec, prepared, tmp_path), None)
    loss = by_moment(answer, on="validation")[1]["contrastive_loss"]
    assert (loss["n"], loss["note"], loss["chance"]) == (6, "batches of 3", math.log(3))
    assert loss["low"] <= loss["value"] <= loss["high"]


@pytest.mark.parametrize("choices", [0, 4])
def test_without_five_choices_there_is_no_accuracy(choices, tiny_prepared, tmp_path):
    folder = tmp_path / "prepared"
    shutil.copytree(tiny_prepared, folder)
    if choices:
        with_choices(folder, choices=choices)
    spec = make_spec()
    before, _ = by_moment(score_model(spec, folder, keep_model(spec, folder, tmp_path), None))
    accuracy = before["matching_accuracy"]
    assert (accuracy["value"], accuracy["n"]) == (None, 0)
    assert "captions to choose from" in accuracy["note"]
    assert before["text_to_image_recall_at_1"]["value"] is not None


def test_each_row_is_passed_with_its_caption_and_each_choice(prepared, tmp_path, monkeypatch):

    seen = []

    def forward(self, batch):
        seen.append(batch["input_ids"].shape)
        return original(self, batch)

    original = splits.Split._forward
    monkeypatch.setattr(splits.Split, "_forward", forward)
    spec = make_spec()
    score_model(spec, prepared, keep_model(spec, prepared, tmp_path), None)
    # Both moments: 7 and 6 rows, each once with its own caption and once with each choice.
    assert sorted(seen) == sorted(2 * 6 * [torch.Size((7, 8)), torch.Size((6, 8))])


def test_a_classifier_has_an_accuracy(labelled, tmp_path):
    spec = make_spec("vit")
    before, after = by_moment(
        score_model(spec, labelled, keep_model(spec, labelled, tmp_path), None)
    )
    assert before.keys() == {"loss", "accuracy"}
    # Its contests are others than those of the training split.
    assert before["accuracy"]["value"] is None
    assert "trained on" in before["accuracy"]["note"]
    assert values(before) == values(after)


def test_a_classifiers_chance_is_of_the_classes_that_it_was_trained_on(labelled, tmp_path):
    folder = tmp_path / "prepared"
    shutil.copytree(labelled, folder)
    table = pq.read_table(folder / "samples.parquet")
    three = pa.array([100 + row % 3 for row in range(table.num_rows)])
    place = table.column_names.index("contest_number")
    pq.write_table(table.set_column(place, "contest_number", three), folder / "samples.parquet")
    spec = make_spec("vit")
    before, _ = by_moment(score_model(spec, folder, keep_model(spec, folder, tmp_path), None))
    assert (before["accuracy"]["n"], before["accuracy"]["chance"]) == (6, pytest.approx(1 / 3))


def test_flava_has_a_loss_of_its_own_kind_and_is_asked_to_retrieve(labelled, tmp_path):
    spec = make_spec("flava")
    before, after = by_moment(
        score_model(spec, labelled, keep_model(spec, labelled, tmp_path), None)
    )
    assert before.keys() == RETRIEVAL | {"loss", "matching_accuracy"}
    assert before["loss"]["chance"] is None
    assert {m: before[m]["value"] for m in RETRIEVAL} == {m: after[m]["value"] for m in RETRIEVAL}


def test_weights_of_another_model_are_refused(prepared, tmp_path):
    weights = keep_model(make_spec("clip"), prepared, tmp_path)
    with pytest.raises(ModelError, match="it is of the model clip"):
        score_model(make_spec(), prepared, weights, None)


def test_pictures_are_the_same_whatever_the_runs_loader_did(prepared, tmp_path):
    plain = make_spec()
    weights = keep_model(plain, prepared, tmp_path)
    odd = make_spec(decode="host", random_flip=True, random_crop=0.5, workers=1)
    expected = by_moment(score_model(plain, prepared, weights, None))
    found = by_moment(score_model(odd, prepared, weights, None))
    assert [values(one) for one in found] == [values(one) for one in expected]


def test_a_model_that_diverged_has_no_loss(prepared, tmp_path):
    spec = make_spec()
    weights = keep_model(spec, prepared, tmp_path)
    from safetensors.torch import load_file, save_file

    file = next(weights.glob("*.safetensors"))
    broken = {name: torch.full_like(t, torch.nan) for name, t in load_file(file).items()}
    save_file(broken, file, metadata={"format": "pt"})
    before, after = by_moment(score_model(spec, prepared, weights, None))
    assert before["contrastive_loss"]["value"] is not None
    assert after["contrastive_loss"]["value"] is None
    assert after["contrastive_loss"]["note"] == "not a finite number"
    assert after["matching_accuracy"]["value"] == 0.0
    assert after["text_to_image_recall_at_1"]["value"] == 0.0
