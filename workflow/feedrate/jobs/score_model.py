"""Score a run's model twice, as it was built and with the weights that training left: on the splits
of its dataset, and on Winoground.

Winoground tests whether a model recognises which caption belongs to which image. Its paper (Thrush
et al. 2022, arXiv 2204.03162, section 3) defines three scores, each 0 or 1 for an example. With
s[c, i] the model's score of caption c and image i:

- text: for either image its own caption scores higher, s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1];
- image: for either caption its own image scores higher, s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0];
- group: both.

Equal scores are wrong: they do not show which one is right.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import set_seed
from transformers.utils import logging

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.config.spec import RunSpec
from feedrate.data.winoground import Example, read_winoground
from feedrate.devices.base import Adapter, adapter
from feedrate.devices.placement import Placement
from feedrate.jobs.evaluation import SPLITS, Hits
from feedrate.jobs.events import EventLog, Scores
from feedrate.jobs.job_setup import make_dataset
from feedrate.jobs.scores import Entry, Split, entry, paired
from feedrate.jobs.worker import Options
from feedrate.loading.dataset import tokenise
from feedrate.loading.pixels import NOTHING, Finish, crop, decode
from feedrate.models.build import Built, build, heads_of, load_config, load_part
from feedrate.models.layers import cast

CHANCE = {"text_score": 1 / 4, "image_score": 1 / 4, "group_score": 1 / 6}
"""Winoground's scores by chance: of the 24 orders of four numbers, 6, 6 and 4 are right."""

Batch = dict[str, torch.Tensor]
Scorer = Callable[[torch.Tensor, Batch], torch.Tensor]
"""From pixels (n, images, 3, px, px) and texts (input_ids and attention_mask, each (n, captions,
tokens)) to scores (n, captions, images) in fp32; larger is better."""


def run_job(
    spec: RunSpec,
    prepared: Path,
    run: Path,  # noqa: ARG001
    log: EventLog,
    placement: Placement,  # noqa: ARG001
    options: Options,
) -> None:
    """Score the weights in `options.score`, and write the `scores` event."""
    assert options.score is not None
    answer = score_model(spec, prepared, options.score, options.winoground)
    log.write(Scores(rank=log.rank, **answer))


def score_model(
    spec: RunSpec, prepared: Path, weights: Path, winoground: Path | None
) -> dict[str, Any]:
    """`scores` before and after training, with the `weights` of that folder, and the copy of
    `winoground` that they are on. Pictures are read as in the published script, whatever the run's
    own loader did."""
    logging.disable_progress_bar()  # the job prints between the workflow's own lines
    device = adapter(spec.kind)
    device.hold_fp32(spec.settings.train.precision)
    loader, untrained = spec.settings.loader, spec.settings.model
    loader = LoaderSettings(max_tokens=loader.max_tokens, label=loader.label)
    settings = msgspec.structs.replace(spec.settings, loader=loader)
    spec = msgspec.structs.replace(spec, settings=settings)
    trained = msgspec.structs.replace(untrained, checkpoint=str(weights.resolve()), revision=None)
    of = partial(_scores_of, spec, device, prepared, winoground)
    described = read_winoground(winoground).described if winoground else ""
    return {"scores": paired(of(untrained), of(trained)), "winoground": described}


def _scores_of(
    spec: RunSpec, device: Adapter, prepared: Path, winoground: Path | None, model: ModelSettings
) -> list[Entry]:
    """The scores of one state of the model. Random weights are those of the training job, which
    sets the same seed just before. Winoground's matching head is that from before training."""
    set_seed(spec.seed)
    built = build(model, spec.settings.loader, prepared)
    cast(built.model, spec.settings.train)
    built.model.to(device.device).eval()
    scores: list[Entry] = []
    for name in SPLITS:
        scores += Split(spec, device, built, make_dataset(spec, prepared, built, name)).scores()
    if winoground is not None:
        autocast = partial(device.autocast, spec.settings.train.precision)
        scores += winoground_quality(winoground, built, spec.settings, autocast=autocast)
    return scores


class NoHeadError(Exception):
    """A head that cannot be scored; the message says why."""


def winoground_quality(
    examples: Path,
    built: Built,
    settings: Settings,
    *,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    batch_size: int = 16,
) -> list[Entry]:
    """Three entries for each head of the model in `built`; `seconds` are those of its passes.
    `examples` is examples.json; `settings` are those that training began with, whose checkpoint has
    the matching head. Raises DataError if pictures are not as they were fetched."""
    built.model.eval()
    rows, weights = read_winoground(examples).examples, next(built.model.parameters())
    scorers: dict[str, Scorer] = {}
    missing: dict[str, str] = {}
    for head in heads_of(settings.model.name):
        try:
            if head == "matching":
                layer = matching_head(settings.model).to(weights.device)
                scorers[head] = partial(matching_scores, built.model.bridgetower, layer)
            else:
                scorers[head] = partial(contrastive_scores, built.model)
        except NoHeadError as reason:
            missing[head] = str(reason)
    seconds = dict.fromkeys(scorers, 0.0)
    scored: dict[str, list[NDArray[np.float32]]] = {head: [] for head in scorers}
    for start in range(0, len(rows), batch_size) if scorers else ():
        batch = rows[start : start + batch_size]
        pixels, texts = _inputs(batch, examples.parent, built, settings, weights)
        for head, score in scorers.items():
            began = time.perf_counter()
            with torch.inference_mode(), autocast():
                scored[head].append(score(pixels, texts).cpu().numpy())
            seconds[head] += time.perf_counter() - began
    found = {head: np.concatenate(parts) for head, parts in scored.items()} | missing
    return [
        {"on": "winoground", "head": head, "seconds": seconds.get(head, 0.0), **one}
        for head, scores in found.items()
        for one in _entries(head, scores)
    ]


def matching_head(settings: ModelSettings) -> torch.nn.Module:
    """The image-text matching head of the checkpoint that a BridgeTower starts from, in fp32, which
    contrastive training does not touch. Raises NoHeadError if there is no trained one: random
    weights would score noise."""
    from transformers import BridgeTowerConfig, BridgeTowerForImageAndTextRetrieval

    if settings.checkpoint is None:
        raise NoHeadError("training starts from random weights, and does not train this head")
    options = {"use_safetensors": True, "output_loading_info": True}
    config = load_config(BridgeTowerConfig, settings)
    kind = BridgeTowerForImageAndTextRetrieval
    model, found = load_part(kind, settings, config=config, **options)
    if any(name.startswith("itm_score.") for name in found["missing_keys"]):
        raise NoHeadError("the checkpoint has no weights of this head (itm_score)")
    return model.itm_score.float().eval()


def contrastive_scores(model: Any, pixels: torch.Tensor, texts: Batch) -> torch.Tensor:
    """Cosine similarity of the embeddings; takes equal numbers of captions and images."""
    n, images = pixels.shape[:2]
    flat = {name: tokens.flatten(0, 1) for name, tokens in texts.items()}
    outputs = model(pixel_values=pixels.flatten(0, 1), **flat, return_loss=False)
    text = outputs.text_embeds.float().unflatten(0, (n, images))
    image = outputs.image_embeds.float().unflatten(0, (n, images))
    with torch.autocast(pixels.device.type, enabled=False):  # rounded scores would tie
        return torch.einsum("ncd,nid->nci", text, image)


def matching_scores(
    trunk: Any, head: torch.nn.Module, pixels: torch.Tensor, texts: Batch
) -> torch.Tensor:
    """The head's logit for "they match", by which the library's own example ranks; each pair passes
    through `trunk`, a BridgeTowerModel."""
    n, images = pixels.shape[:2]
    captions = texts["input_ids"].shape[1]
    pairs = {name: t.repeat_interleave(images, dim=1).flatten(0, 1) for name, t in texts.items()}
    outputs = trunk(pixel_values=pixels.repeat(1, captions, 1, 1, 1).flatten(0, 1), **pairs)
    with torch.autocast(pixels.device.type, enabled=False):  # rounded scores would tie
        logits: torch.Tensor = head(outputs.pooler_output.float())[:, 1]
    return logits.view(n, captions, images)


def hits(scores: NDArray[np.float32]) -> dict[str, Hits]:
    """Which examples are right, by score; `scores` is (n, 2 captions, 2 images)."""
    own = scores[:, (0, 1), (0, 1)]
    # The other caption of image 0 is 1, and that of image 1 is 0; the same for images of a caption.
    text: Hits = np.all(own > scores[:, (1, 0), (0, 1)], axis=1)
    image: Hits = np.all(own > scores[:, (0, 1), (1, 0)], axis=1)
    return {"text_score": text, "image_score": image, "group_score": text & image}


def _entries(head: str, scores: NDArray[np.float32] | str) -> list[Entry]:
    """The entries of a head, from its scores or the reason why it has none."""
    note = "the checkpoint's own head" if head == "matching" else ""
    right: dict[str, Hits] = {}
    if isinstance(scores, str):
        note = scores
    elif not np.isfinite(scores).all():
        note = "some scores are not finite"
    else:
        right = hits(scores)
    return [entry(name, right.get(name), chance=at, note=note) for name, at in CHANCE.items()]


def _inputs(
    batch: list[Example], folder: Path, built: Built, settings: Settings, weights: torch.Tensor
) -> tuple[torch.Tensor, Batch]:
    """Pixels (n, 2, 3, px, px), normalised, of the type of `weights`; input_ids and attention_mask,
    each (n, 2, tokens). All are on the device of `weights`."""
    paths = [folder / image for example in batch for image in example.images]
    crops = torch.stack([crop(decode(path), built.image_px, NOTHING) for path in paths])
    pixels = Finish(built.mean, built.std).pixels(crops).to(weights)
    captions = [caption for example in batch for caption in example.captions]
    tokens = tokenise(built.tokenizer, captions, settings.loader.max_tokens)
    ids, mask = (t.to(weights.device).unflatten(0, (len(batch), 2)) for t in tokens)
    texts = {"input_ids": ids, "attention_mask": mask}
    return pixels.unflatten(0, (len(batch), 2)), texts
