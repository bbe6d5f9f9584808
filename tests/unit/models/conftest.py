"""A prepared dataset with what the models beyond BridgeTower need: classes and a mask token."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import build


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Threads that wait for each other on a busy machine would make tests slow."""
    torch.set_num_threads(1)


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


@pytest.fixture
def make(labelled):
    """Build a model with seeded weights: `make("vit", "tiny", attention="sdpa")`."""

    def make(name, size="tiny", *, max_tokens=16, **settings):
        torch.manual_seed(1)
        return build(
            ModelSettings(name=name, size=size, **settings),
            LoaderSettings(max_tokens=max_tokens),
            labelled,
        )

    return make
