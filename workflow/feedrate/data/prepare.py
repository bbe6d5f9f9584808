"""`python -m feedrate.data.prepare`: verify what was fetched and lay it out for training.

Writes images/, samples.parquet, tokenizer/, checksums.json, data_report.json and, last,
manifest.json. The folder prepared/ is replaced as a whole or not at all.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, cast

import msgspec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from feedrate.config.reading import convert_text
from feedrate.config.workflow import Dataset, Folder
from feedrate.core.files import digest_file, replaced_folder, write_json, write_text
from feedrate.data.manifest import (
    CHECKSUMS,
    IMAGES,
    REPORT,
    SAMPLES,
    SPLITS,
    TOKENIZER,
    DataError,
    LeftOut,
    Manifest,
    RawIndex,
    image_root,
    images_digest,
    read_index,
    run_command,
)
from feedrate.data.rows import count_splits, make_table, read_rows, share_out, write_table
from feedrate.data.verify import Rejected, Stored, verify_images

# prepared/data_report.json: what a dataset consists of, what was converted, what left out.

REPORT_SCHEMA = 1


def make_report(
    index: RawIndex,
    rows: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    verdicts: Mapping[str, Stored | Rejected],
) -> dict[str, Any]:
    """Counts, distributions and lists; free of times, machine names and absolute paths."""
    stored = [verdict for verdict in verdicts.values() if isinstance(verdict, Stored)]
    left_out = [*index.left_out, *rejected_images(rows, verdicts)]
    return {
        "schema": REPORT_SCHEMA,
        "dataset": index.dataset,
        "source": index.source,
        "revision": index.revision,
        "samples": len(samples),
        "splits": msgspec.to_builtins(count_splits(samples)),
        "images": len({image.path for image in stored}),
        "width_px": summary(image.width for image in stored),
        "height_px": summary(image.height for image in stored),
        "megapixels": summary(image.width * image.height / 1e6 for image in stored),
        "kilobytes": summary(image.size / 1e3 for image in stored),
        "caption_words": summary(len(sample["caption"].split()) for sample in samples),
        "modes": _counts(image.mode for image in stored),
        "formats": _counts(image.format for image in stored),
        "converted": _counts(change for image in stored for change in image.changes),
        "changed_since_fetch": sorted(
            path for path, v in verdicts.items() if isinstance(v, Stored) and v.edited
        ),
        "rows_left_out": sum(entry.rows for entry in left_out),
        "left_out": [
            {"path": entry.path, "reason": entry.reason, "rows": entry.rows} for entry in left_out
        ],
    }


def rejected_images(
    rows: Iterable[Mapping[str, Any]], verdicts: Mapping[str, Stored | Rejected]
) -> list[LeftOut]:
    """The images that verification left out, with the rows lost by each."""
    lost = Counter(row["image"] for row in rows)
    return [
        LeftOut(path=path, reason=verdict.reason, rows=lost[path])
        for path, verdict in sorted(verdicts.items())
        if isinstance(verdict, Rejected)
    ]


def summary(values: Iterable[float]) -> dict[str, float]:
    """Smallest, 5%, median, mean, 95% and largest; nothing where there are no values."""
    ordered = sorted(float(value) for value in values)
    if not ordered:
        return {}
    marks = quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered * 19
    figures = {
        "min": ordered[0],
        "p5": marks[0],
        "median": median(ordered),
        "mean": fmean(ordered),
        "p95": marks[-1],
        "max": ordered[-1],
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


# A small tokenizer of the dataset's own, for models with random weights and no hub.

VOCABULARY = 4096
"""At most so many tokens."""
SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
"""RoBERTa's special tokens, in RoBERTa's order: <pad> is 1, as BridgeTower's text model expects."""
_MAX_LENGTH = 512


def train_tokenizer(captions: Iterable[str], folder: Path) -> None:
    """Train a byte-level BPE and write it as `PreTrainedTokenizerFast.from_pretrained` reads it.

    The same captions, in any order, give the same files.
    """
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
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _MAX_LENGTH,
        "cls_token": first,
        "sep_token": last,
        "clean_up_tokenization_spaces": False,
        **SPECIAL,
    }
    write_text(folder / "tokenizer.json", json.dumps(json.loads(tokenizer.to_str()), indent=1))
    write_json(folder / "tokenizer_config.json", settings)


_SHOWN = 20
_Verdicts = dict[str, Stored | Rejected]


def prepare(index_path: Path, settings: Dataset, out: Path, workers: int) -> Manifest:
    """Prepare the dataset of `index_path` into the folder of `out`, which is manifest.json.

    The same index and files give the same manifest. Raises DataError in one sentence where too
    many images are bad, nothing is left to train on, or the index cannot be read.
    """
    index = read_index(index_path)
    rows = read_rows(index_path.parent / index.rows.path)
    with replaced_folder(out.parent) as folder:
        (folder / IMAGES).mkdir()
        verdicts = verify_images(image_root(index_path, index), index.files, folder, workers)
        _hold_share(index, settings, rows, verdicts, out.parent)
        samples = _samples(rows, settings, verdicts)
        if not any(sample["split"] == "train" for sample in samples):
            raise DataError(
                f"dataset {index.dataset}: the training split would be empty; "
                f"{len(samples)} samples are left for the others"
            )
        write_table(folder / SAMPLES, make_table(samples, ("sample_id", "split", "image")))
        train_tokenizer(
            (s["caption"] for s in samples if s["split"] == "train"), folder / TOKENIZER
        )
        report = make_report(index, rows, samples, verdicts)
        write_json(folder / REPORT, report)
        return _finish(folder, index, samples, verdicts, out.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="feedrate.data.prepare", description=__doc__)
    parser.add_argument("--index", required=True, type=Path, help="raw/index.json")
    parser.add_argument("--settings", required=True, help="the dataset's, as a Python literal")
    parser.add_argument("--out", required=True, type=Path, help="prepared/manifest.json")
    options = parser.parse_args(arguments)

    def work() -> str:
        origin = f"settings of {options.index}"
        settings = cast(Dataset, convert_text(options.settings, cast(Any, Dataset), origin))
        workers = len(os.sched_getaffinity(0))
        manifest = prepare(options.index, settings, options.out, workers)
        rows = ", ".join(f"{split} {count.rows}" for split, count in manifest.splits.items())
        size_mb = manifest.images_bytes / 1e6
        return f"prepared {manifest.dataset}: {rows}; {manifest.images} images, {size_mb:.1f} MB"

    return run_command(parser.prog, work, options.out)


def _hold_share(
    index: RawIndex,
    settings: Dataset,
    rows: Sequence[dict[str, Any]],
    verdicts: _Verdicts,
    prepared: Path,
) -> None:
    """Raise DataError, with a list, where too large a share of the images is bad."""
    bad = rejected_images(rows, verdicts)
    listing = prepared.with_name(f"{prepared.name}.rejected.json")
    if not bad or len(bad) <= settings.max_bad_share * len(verdicts):
        listing.unlink(missing_ok=True)
        return
    write_json(listing, msgspec.to_builtins([*index.left_out, *bad]))
    first = "\n".join(f"  {entry.path}: {entry.reason}" for entry in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    raise DataError(
        f"dataset {index.dataset}: {len(bad)} of {len(verdicts)} images are bad, more than "
        f"max_bad_share = {settings.max_bad_share:g} allows; all of them stand in {listing}:\n"
        f"{first}{more}"
    )


def _samples(
    rows: Sequence[dict[str, Any]], settings: Dataset, verdicts: _Verdicts
) -> list[dict[str, Any]]:
    """The rows with a good image, in splits, by split and then in the order of the rows."""
    samples: list[dict[str, Any]] = []
    for row in rows:
        verdict = verdicts.get(row["image"])
        if isinstance(verdict, Stored):
            samples.append(
                {k: v for k, v in row.items() if k != "origin"} | {"image": verdict.path}
            )
    if isinstance(settings, Folder) and settings.split is None:
        groups = [_group(sample) for sample in samples]
        shares = settings.validation_share, settings.test_share
        splits = share_out(groups, *shares, settings.seed)
        for sample, group in zip(samples, groups, strict=True):
            sample["split"] = splits[group]
    samples.sort(key=lambda sample: SPLITS.index(sample["split"]))
    for number, sample in enumerate(samples):
        sample["sample_id"] = f"{number:06d}"
    return samples


def _group(sample: dict[str, Any]) -> str:
    """What must not be in two splits: a contest, or where there is none an image."""
    contest = sample["contest_number"]
    return str(sample["image"] if contest is None else contest)


def _finish(
    folder: Path,
    index: RawIndex,
    samples: Sequence[dict[str, Any]],
    verdicts: _Verdicts,
    manifest_name: str,
) -> Manifest:
    """Write the checksums and, last, the manifest; the report tells of the data and is no part of
    what is trained on, so its wording does not change the manifest."""
    images = {v.path: v for v in verdicts.values() if isinstance(v, Stored)}
    checksums = {p: {"sha256": v.sha256, "size": v.size} for p, v in images.items()}
    write_json(folder / CHECKSUMS, checksums)
    names = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    others = [name for name in names if name.parts[0] not in (IMAGES, REPORT)]
    manifest = Manifest(
        dataset=index.dataset,
        splits=count_splits(samples),
        files={name.as_posix(): digest_file(folder / name) for name in others},
        images=len(images),
        images_bytes=sum(image.size for image in images.values()),
        images_digest=images_digest({path: image.sha256 for path, image in images.items()}),
    )
    write_json(folder / manifest_name, msgspec.to_builtins(manifest))
    return manifest


if __name__ == "__main__":
    sys.exit(main())
