"""A prepared dataset as small as training allows, shared by the rooms that read one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from feedrate.core.files import digest_file, write_json
from feedrate.data.manifest import CHECKSUMS, MANIFEST, Manifest, SplitCount

ROWS = {"train": 24, "validation": 7, "test": 6}
SPECIAL = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
WORDS = ["a", "cat", "dog", "king", "desk", "says", "that", "the", "moon", "was", "never", "late"]


def draw(path: Path, rng: np.random.Generator, *, grey: bool) -> None:
    """A JPEG of 150 to 260 px with a few strokes."""
    width, height = (int(n) for n in rng.integers(150, 260, size=2))
    image = Image.new("L" if grey else "RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    for _ in range(12):
        x, y, dx, dy = (int(n) for n in rng.integers(0, 150, size=4))
        pen.line((x, y, x + dx, y + dy), fill=int(rng.integers(0, 255)), width=3)
    image.save(path, quality=88)


def make_tokenizer(folder: Path) -> None:
    """A word-level tokenizer with RoBERTa's special tokens, padding not at 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast  # slow: not for rooms without a model

    vocabulary = {word: i for i, word in enumerate([*SPECIAL.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)


def make_prepared(folder: Path) -> Path:
    """Write a prepared dataset into `folder`; two rows share each image."""

    rng = np.random.default_rng(5)
    (folder / "images").mkdir(parents=True)
    rows: list[dict[str, object]] = []
    for split, count in ROWS.items():
        for i in range(count):
            name = f"images/{split}-{i // 2}.jpg"
            if not (folder / name).exists():
                draw(folder / name, rng, grey=i % 4 < 2)
            caption = " ".join(rng.choice(WORDS, size=6))
            rows.append(
                {"sample_id": f"{split}-{i}", "split": split, "image": name, "caption": caption}
            )
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    make_tokenizer(folder / "tokenizer")
    images = {f"images/{p.name}": digest_file(p) for p in (folder / "images").iterdir()}
    write_json(folder / CHECKSUMS, images)
    others = [
        CHECKSUMS,
        "samples.parquet",
        *(f"tokenizer/{p.name}" for p in (folder / "tokenizer").iterdir()),
    ]
    manifest = Manifest(
        dataset="tiny",
        splits={
            split: SplitCount(rows=n, images=len({r["image"] for r in rows if r["split"] == split}))
            for split, n in ROWS.items()
        },
        files={name: digest_file(folder / name) for name in sorted(others)},
        images=len(images),
    )
    write_json(folder / MANIFEST, msgspec.to_builtins(manifest))
    return folder


@pytest.fixture
def own_project(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of the test's own: jobs of other test workers do not keep it waiting."""
    monkeypatch.chdir(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def tiny_prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder; tests only read it."""
    return make_prepared(tmp_path_factory.mktemp("tiny") / "prepared")


@pytest.fixture(scope="session")
def labelled(tiny_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny dataset with contest numbers (two rows each) and a tokenizer that can mask."""
    folder = tmp_path_factory.mktemp("labelled") / "prepared"
    shutil.copytree(tiny_prepared, folder)
    table = pq.read_table(folder / "samples.parquet")
    numbers = pa.array([100 + row // 2 for row in range(table.num_rows)])
    empty = pa.nulls(table.num_rows, pa.string())
    table = table.append_column("contest_number", numbers).append_column("label", empty)
    pq.write_table(table, folder / "samples.parquet")
    path = folder / "tokenizer/tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "mask_token": "<mask>"}))
    return folder


@pytest.fixture(scope="session")
def known_flops() -> dict[str, float]:
    """The FLOPs that were counted so far, by configuration and tokens."""
    return {}


@pytest.fixture(scope="module")
def counted_once(known_flops: dict[str, float]) -> Iterator[None]:
    """The FLOPs of a model are counted once: that is most of the work of a tiny job."""
    from feedrate.jobs import job_setup
    from feedrate.models.flops import count_flops

    def counted(built: Any, max_tokens: int) -> float:
        model = built.outline
        trained = [name for name, value in model.named_parameters() if value.requires_grad]
        key = f"{type(model)} {model.config.to_json_string()} {trained} {max_tokens}"
        if key not in known_flops:
            known_flops[key] = count_flops(built, max_tokens)
        return known_flops[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_setup, "count_flops", counted)
        yield
