"""Winoground's scores of real models: small ones, saved and loaded as checkpoints are."""

import shutil

import msgspec
import numpy as np
import pytest
import torch
from transformers.models.bridgetower.modeling_bridgetower import (
    BridgeTowerForImageAndTextRetrieval,
)

from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings, Settings
from feedrate.config.workflow import GeneratedExamples
from feedrate.core import plugins
from feedrate.data.manifest import DataError
from feedrate.data.winoground import fetch_winoground, read_winoground
from feedrate.jobs import score_model
from feedrate.jobs.score_model import (
    CHANCE,
    NoHeadError,
    contrastive_scores,
    hits,
    matching_head,
    matching_scores,
    winoground_quality,
)
from feedrate.models.build import build, heads_of

LOADER = LoaderSettings(max_tokens=16)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    out = tmp_path_factory.mktemp("winoground") / "generated/examples.json"
    fetch_winoground("generated", GeneratedExamples(examples=5), out, workers=2)
    return out


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, tiny_prepared):
    """BridgeTower with its matching head, and as contrastive training saves it."""
    folder = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(3)
    built = build(ModelSettings(name="bridgetower", size="tiny"), LOADER, tiny_prepared)
    retrieval = BridgeTowerForImageAndTextRetrieval(built.model.config)
    retrieval.bridgetower.load_state_dict(built.model.bridgetower.state_dict())
    for name, model in (("matching", retrieval), ("contrastive", built.model)):
        model.save_pretrained(folder / name)
        built.tokenizer.save_pretrained(folder / name)
    return folder


def settings(checkpoint=None, name="bridgetower"):
    model = ModelSettings(
        name=name, size="tiny", checkpoint=str(checkpoint) if checkpoint else None
    )
    return Settings(model=model, loader=LOADER)


def made(chosen, prepared):
    torch.manual_seed(1)
    return build(chosen.model, chosen.loader, prepared)


def batch(px, n=3, tokens=16):
    draw = torch.Generator().manual_seed(7)
    pixels = torch.randn(n, 2, 3, px, px, generator=draw)
    input_ids = torch.randint(4, 16, (n, 2, tokens), generator=draw)
    return pixels, {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


def by_head(results):
    found = {}
    for result in results:
        found.setdefault(result["head"], {})[result["metric"]] = result
    return found


def test_the_matching_head_scores_as_the_librarys_class_does(checkpoints, tiny_prepared):
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    whole = BridgeTowerForImageAndTextRetrieval.from_pretrained(checkpoints / "matching").eval()
    pixels, texts = batch(built.image_px)
    built.model.eval()
    with torch.inference_mode():
        scores = matching_scores(
            built.model.bridgetower, matching_head(chosen.model), pixels, texts
        )
        for n, c, i in ((0, 0, 0), (1, 1, 0), (2, 0, 1), (2, 1, 1)):
            one = {name: tokens[n, c][None] for name, tokens in texts.items()}
            logits = whole(pixel_values=pixels[n, i][None], **one).logits
            assert scores[n, c, i].item() == pytest.approx(logits[0, 1].item(), abs=1e-5)
    assert scores.shape == (3, 2, 2)
    assert len(set(scores.flatten().tolist())) == 12


@pytest.mark.parametrize("name", ["bridgetower", "clip"])
def test_contrastive_scores_are_cosines_of_each_caption_and_image_alone(name, tiny_prepared):
    built = made(settings(name=name), tiny_prepared)
    built.model.eval()
    pixels, texts = batch(built.image_px)
    with torch.inference_mode():
        scores = contrastive_scores(built.model, pixels, texts)
        for n, c, i in ((0, 0, 0), (1, 1, 0), (2, 0, 1)):
            one = {key: tokens[n, c][None] for key, tokens in texts.items()}
            out = built.model(pixel_values=pixels[n, i][None], **one, return_loss=False)
            cosine = torch.nn.functional.cosine_similarity(out.text_embeds, out.image_embeds)
            assert scores[n, c, i].item() == pytest.approx(cosine.item(), abs=1e-5)


def test_scores_do_not_tie_for_want_of_digits(checkpoints, tiny_prepared):
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    built.model.eval()
    pixels, texts = batch(built.image_px, n=6)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        head = matching_head(chosen.model)
        matching = matching_scores(built.model.bridgetower, head, pixels, texts)
        contrastive = contrastive_scores(built.model, pixels, texts)
    for scores in (matching, contrastive):
        assert scores.dtype == torch.float32
        rounded = scores.to(torch.bfloat16).float()
        assert not torch.equal(scores, rounded)


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_a_checkpoint_with_its_head_has_all_scores(examples, checkpoints, tiny_prepared, precision):
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    context = {"autocast": lambda: torch.autocast("cpu", dtype=precision)} if precision else {}
    found = by_head(winoground_quality(examples, built, chosen, batch_size=2, **context))
    assert set(found) == {"matching", "contrastive"}
    for scores in found.values():
        assert set(scores) == set(CHANCE)
        for score in scores.values():
            assert 0 <= score["low"] <= score["value"] <= score["high"] <= 1
            assert (score["n"], score["seconds"] > 0) == (5, True)
            assert score["chance"] == CHANCE[score["metric"]]
            assert score["value"] in (0, 0.2, 0.4, 0.6, 0.8, 1)
    assert found["matching"]["text_score"]["note"] == "the checkpoint's own head"
    assert found["contrastive"]["text_score"]["note"] == ""


def test_the_size_of_batches_changes_no_score(examples, checkpoints, tiny_prepared):
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    found = [
        [r | {"seconds": 0} for r in winoground_quality(examples, built, chosen, batch_size=n)]
        for n in (2, 5)
    ]
    assert found[0] == found[1]


def test_training_moves_the_trunk_below_the_checkpoints_head(
    examples, checkpoints, tiny_prepared, monkeypatch
):
    seen = []
    monkeypatch.setattr(score_model, "hits", lambda scores: seen.append(scores) or hits(scores))
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    winoground_quality(examples, built, chosen)
    with torch.no_grad():
        for weights in built.model.bridgetower.cross_modal_text_pooler.parameters():
            weights.add_(torch.randn_like(weights))
    winoground_quality(examples, built, chosen)
    (contrastive, matching), (contrastive_after, matching_after) = seen[:2], seen[2:]
    assert not np.array_equal(matching, matching_after)
    assert np.array_equal(contrastive, contrastive_after)  # it does not read what was changed


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        (None, "training starts from random weights, and does not train this head"),
        ("contrastive", "the checkpoint has no weights of this head (itm_score)"),
    ],
)
def test_an_untrained_head_gives_a_reason_and_no_score(
    examples, checkpoints, tiny_prepared, checkpoint, reason
):
    chosen = settings(checkpoints / checkpoint if checkpoint else None)
    with pytest.raises(NoHeadError) as error:
        matching_head(chosen.model)
    assert str(error.value).endswith(reason)
    found = by_head(winoground_quality(examples, made(chosen, tiny_prepared), chosen))
    for score in found["matching"].values():
        assert (score["value"], score["low"], score["high"], score["n"]) == (None, None, None, 0)
        assert score["note"].endswith(reason)
    assert found["contrastive"]["text_score"]["n"] == 5


def test_clip_has_one_head(examples, tiny_prepared):
    chosen = settings(name="clip")
    found = by_head(winoground_quality(examples, made(chosen, tiny_prepared), chosen))
    assert set(found) == {"contrastive"}


@pytest.mark.parametrize("model", plugins.names(BUILDERS))
def test_a_models_heads_are_those_of_its_module(model):
    assert heads_of(model) == getattr(plugins.load(BUILDERS, model), "HEADS", {})


def test_a_model_without_captions_has_none(examples, labelled):
    chosen = settings(name="vit")
    assert winoground_quality(examples, made(chosen, labelled), chosen) == []


def test_numbers_that_are_not_finite_are_no_score(examples, tiny_prepared):
    chosen = settings(name="clip")
    built = made(chosen, tiny_prepared)
    with torch.no_grad():
        built.model.visual_projection.weight.fill_(torch.nan)
    found = winoground_quality(examples, built, chosen)
    assert [(r["value"], r["note"]) for r in found] == [(None, "some scores are not finite")] * 3


def test_pictures_that_were_changed_are_told(examples, tiny_prepared, tmp_path):
    copy = tmp_path / "generated"
    shutil.copytree(examples.parent, copy)
    image = copy / read_winoground(copy / "examples.json").examples[2].image_1
    image.write_bytes(image.read_bytes() + b"!")
    chosen = settings(name="clip")
    with pytest.raises(DataError, match="does not match its recorded checksum: delete the folder"):
        winoground_quality(copy / "examples.json", made(chosen, tiny_prepared), chosen)


def test_weights_in_half_precision_are_scored_too(examples, checkpoints, tiny_prepared):
    chosen = settings(checkpoints / "matching")
    built = made(chosen, tiny_prepared)
    built.model.to(torch.bfloat16)
    found = by_head(winoground_quality(examples, built, chosen))
    assert {score["n"] for scores in found.values() for score in scores.values()} == {5}


def test_captions_are_cut_as_the_run_cuts_them(examples, tiny_prepared):
    chosen = msgspec.structs.replace(settings(name="clip"), loader=LoaderSettings(max_tokens=4))
    found = winoground_quality(examples, made(chosen, tiny_prepared), chosen)
    assert found[0]["n"] == 5
