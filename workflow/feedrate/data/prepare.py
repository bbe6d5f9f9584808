"""`python -m feedrate.data.prepare`: verify what was fetched and lay it out for training.

Writes images/, samples.parquet, tokenizer/, checksums.json, data_report.json and, last,
manifest.json. The folder prepared/ is replaced as a whole or not at all.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from feedrate.config.load import convert_text
from feedrate.config.workflow import Dataset, Folder
from feedrate.data.cli import run_command
from feedrate.data.data_report import make_report, rejected_images
from feedrate.data.manifest import (
    CHECKSUMS,
    IMAGES,
    REPORT,
    SAMPLES,
    SPLITS,
    TOKENIZER,
    DataError,
    Manifest,
    images_digest,
)
from feedrate.data.raw import RawIndex, image_root, read_index
from feedrate.data.rows import make_table, read_rows, write_table
from feedrate.data.splits import count_splits, share_out
from feedrate.data.swap import replaced_folder
from feedrate.data.tokenizer import train_tokenizer
from feedrate.data.verify import Rejected, Stored, verify_images
from feedrate.files import digest_file, write_json

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
