"""Prepare a fetched dataset for training: verify every image, split the rows, train a tokenizer.
Writes images/, samples.parquet, tokenizer/, checksums.json, data_report.json and, last,
manifest.json. The folder prepared/ is replaced as a whole or not at all."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from feedrate.config.workflow import Dataset, Folder
from feedrate.core.files import digest_file, digest_text, replaced_folder, write_json, write_text
from feedrate.data.manifest import (
    CHECKSUMS,
    IMAGES,
    MANIFEST,
    REPORT,
    SAMPLES,
    SPLITS,
    TOKENIZER,
    DataError,
    LeftOut,
    Manifest,
    RawIndex,
    SplitCount,
    read_index,
)
from feedrate.data.tables import make_table, read_table, write_table
from feedrate.data.verify import Stored, verify_images

_SHOWN = 20
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
VOCABULARY = 4096  # at most so many tokens are learned
SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
"""RoBERTa's special tokens, in RoBERTa's order: <pad> is 1, as BridgeTower's text model expects."""


def preprocess_dataset(index: Path, settings: Dataset, out: Path, workers: int = 0) -> None:
    """Prepare the dataset of `index` (raw/index.json); `out` is prepared/manifest.json. The same
    index and files give the same manifest. `workers`: processes; 0: one a core."""
    fetched = read_index(index)
    rows = read_table(index.parent / fetched.rows.path).rows
    root = Path(fetched.root) if fetched.root else index.parent
    with replaced_folder(out.parent) as folder:
        (folder / IMAGES).mkdir()
        workers = workers or len(os.sched_getaffinity(0))
        stored: dict[str, Stored] = {}
        left_out = list(fetched.left_out)
        rows_of_image = Counter(row["image"] for row in rows)
        for path, verdict in sorted(verify_images(root, fetched.files, folder, workers).items()):
            if isinstance(verdict, Stored):
                stored[path] = verdict
            else:
                left_out.append(
                    LeftOut(path=path, reason=verdict.reason, rows=rows_of_image[path], images=1)
                )
        samples = _samples(rows, settings, stored)
        report = make_report(fetched, left_out, samples, stored)
        _check_bad_share(report, settings.max_bad_share, out.parent)
        captions = [sample["caption"] for sample in samples if sample["split"] == "train"]
        if not captions:
            raise DataError(
                f"dataset {fetched.dataset}: the training split would be empty; {len(samples)} "
                "samples are left for others"
            )
        write_table(folder / SAMPLES, make_table(samples, ("sample_id", "split", "image")))
        train_tokenizer(captions, folder / TOKENIZER)
        write_json(folder / REPORT, report)
        images = {image.path: image.sha256 for image in stored.values()}
        write_json(folder / CHECKSUMS, images)
        files = [SAMPLES, CHECKSUMS, *(f"{TOKENIZER}/{name}" for name in TOKENIZER_FILES)]
        manifest = Manifest(
            dataset=fetched.dataset,
            splits=count_splits(samples),
            files={name: digest_file(folder / name) for name in files},
            images=len(images),
        )
        write_json(folder / MANIFEST, msgspec.to_builtins(manifest))
    counts = ", ".join(f"{split} {count.rows}" for split, count in manifest.splits.items())
    print(f"prepared {fetched.dataset}: {counts}; {len(images)} images")


def _check_bad_share(report: Mapping[str, Any], max_bad_share: float, prepared: Path) -> None:
    """Raise DataError, and write a list of all that is left out, if its share is too large."""
    listing = prepared.with_name(f"{prepared.name}.rejected.json")
    images, rows = report["images_left_out"], report["rows_left_out"]
    of_images, of_rows = report["images_read"], report["rows_read"]
    if images <= max_bad_share * of_images and rows <= max_bad_share * of_rows:
        listing.unlink(missing_ok=True)
        return
    left_out = report["left_out"]
    write_json(listing, left_out)
    first = "\n".join(f"  {entry['path']}: {entry['reason']}" for entry in left_out[:_SHOWN])
    more = f"\n  and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
    raise DataError(
        f"dataset {report['dataset']}: {images} of {of_images} images and {rows} of {of_rows} rows "
        f"are left out, more than max_bad_share = {max_bad_share:g} allows; {listing} lists all of "
        f"them:\n{first}{more}"
    )


def _samples(
    rows: Sequence[dict[str, Any]], settings: Dataset, stored: Mapping[str, Stored]
) -> list[dict[str, Any]]:
    """The rows with a good image, sorted by split, each with its split and number."""
    samples = [row | {"image": stored[row["image"]].path} for row in rows if row["image"] in stored]
    if isinstance(settings, Folder) and settings.split is None:
        groups = group_rows(samples)
        splits = share_out(groups, settings.validation_share, settings.test_share, settings.seed)
        for sample, group in zip(samples, groups, strict=True):
            sample["split"] = splits[group]
    samples.sort(key=lambda sample: SPLITS.index(sample["split"]))
    for number, sample in enumerate(samples):
        del sample["origin"]
        sample["sample_id"] = f"{number:06d}"
    return samples


def group_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The name of each row's group. Rows with one contest number, or one image, are in one group,
    and so are those that other rows connect."""
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def group_of(key: tuple[str, str]) -> tuple[str, str]:
        parent = parents.setdefault(key, key)
        while parent != key:
            parents[key] = parents[parent]
            key, parent = parent, parents[parent]
        return key

    keys = []
    for row in rows:
        image, contest = ("image", row["image"]), ("contest", str(row["contest_number"]))
        keys.append(image)
        if row["contest_number"] is not None:
            # The first in the alphabet: a contest names its group.
            group, joined = sorted((group_of(image), group_of(contest)))
            parents[joined] = group
    return [group_of(key)[1] for key in keys]


def share_out(
    groups: Iterable[str], validation_share: float, test_share: float, seed: int
) -> dict[str, str]:
    """Assign every group to a split; one with a share above 0 gets at least one group."""
    order = sorted(set(groups), key=lambda group: digest_text(f"{seed}/{group}"))
    splits = dict.fromkeys(order, "train")
    count, position = len(order), min(1, len(order))  # the first group trains
    for split, share in (("validation", validation_share), ("test", test_share)):
        end = position + (max(1, round(share * count)) if share > 0 else 0)
        for group in order[position:end]:
            splits[group] = split
        position = end
    return splits


def count_splits(samples: Sequence[Mapping[str, Any]]) -> dict[str, SplitCount]:
    """Rows and distinct images of every split, including empty ones."""
    counts = {}
    for split in SPLITS:
        images = [sample["image"] for sample in samples if sample["split"] == split]
        counts[split] = SplitCount(rows=len(images), images=len(set(images)))
    return counts


def train_tokenizer(captions: Iterable[str], folder: Path) -> None:
    """Train a small BPE tokenizer; the same captions in any order give the same files."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(set(captions)), trainer)
    first, last = SPECIAL["bos_token"], SPECIAL["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "cls_token": first,
        "sep_token": last,
        "clean_up_tokenization_spaces": False,
        **SPECIAL,
    }
    tokenizer_name, settings_name = TOKENIZER_FILES
    write_text(folder / tokenizer_name, json.dumps(json.loads(tokenizer.to_str()), indent=1))
    write_json(folder / settings_name, settings)


def make_report(
    index: RawIndex,
    left_out: Sequence[LeftOut],
    samples: Sequence[Mapping[str, Any]],
    stored: Mapping[str, Stored],
) -> dict[str, Any]:
    """data_report.json, without times, machine names and absolute paths."""
    pictures = [image.picture for image in stored.values()]
    splits_of = Counter(image for image, _ in {(row["image"], row["split"]) for row in samples})
    reasons = Counter[str]()
    for entry in left_out:
        reasons[entry.reason] += entry.rows
    return {
        "schema": 1,
        "dataset": index.dataset,
        "source": index.source,
        "revision": index.revision,
        "samples": len(samples),
        "splits": msgspec.to_builtins(count_splits(samples)),
        "images": len({image.path for image in stored.values()}),
        "images_in_several_splits": sum(count > 1 for count in splits_of.values()),
        "width_px": summary(picture.width for picture in pictures),
        "height_px": summary(picture.height for picture in pictures),
        "megapixels": summary(picture.width * picture.height / 1e6 for picture in pictures),
        "kilobytes": summary(image.size / 1e3 for image in stored.values()),
        "caption_words": summary(len(sample["caption"].split()) for sample in samples),
        "modes": Counter(picture.mode for picture in pictures),
        "formats": Counter(picture.format for picture in pictures),
        "converted": Counter(change for picture in pictures for change in picture.changes),
        "changed_since_fetch": sorted(path for path, image in stored.items() if image.is_edited),
        "images_read": index.images_read,
        "images_left_out": index.images_read - len(stored),
        "rows_read": index.rows_read,
        "rows_left_out": reasons.total(),
        "rows_left_out_by_reason": reasons,
        "left_out": msgspec.to_builtins(left_out),
    }


def summary(numbers: Iterable[float]) -> dict[str, float]:
    """Smallest, 5%, median, mean, 95% and largest of the values, rounded; empty without values."""
    array = np.array([*numbers], dtype=float)
    if not array.size:
        return {}
    marks = {"min": 0, "p5": 5, "median": 50, "p95": 95, "max": 100}
    values = {name: np.percentile(array, percent) for name, percent in marks.items()}
    return {n: round(float(value), 3) for n, value in {**values, "mean": array.mean()}.items()}
