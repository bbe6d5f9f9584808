import csv
from pathlib import Path

import pytest
from drawings import drawing, encoded

from feedrate.config.workflow import Folder
from feedrate.data.fetch import fetch_dataset
from feedrate.data.manifest import read_index, read_manifest
from feedrate.data.prepare import preprocess_dataset


class Workplace:
    """A user's folder `mine`, and the places where the suite puts the dataset made of it."""

    def __init__(self, root: Path):
        self.mine = root / "mine"
        self.mine.mkdir()
        self.index = root / "resources/datasets/mine/raw/index.json"
        self.manifest = root / "resources/datasets/mine/prepared/manifest.json"

    def image(self, name, data=None, shade=0):
        path = self.mine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(drawing(shade=shade)) if data is None else data)
        return path

    def table(self, rows, name="captions.csv", header=("image", "caption")):
        path = self.mine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([header, *rows])
        return path

    def settings(self, **changes):
        return Folder(**{"path": str(self.mine), "max_bad_share": 1.0, **changes})

    def fetch(self, **changes):
        fetch_dataset("mine", self.settings(**changes), self.index)
        return read_index(self.index)

    def prepare(self, workers=1, **changes):
        preprocess_dataset(self.index, self.settings(**changes), self.manifest, workers)
        return read_manifest(self.manifest)

    def filled(self, count=6):
        """A good dataset of `count` images with a caption each."""
        for number in range(count):
            self.image(f"{number}.jpg", shade=7 * number)
        self.table([(f"{number}.jpg", f"drawing number {number}") for number in range(count)])
        return self


@pytest.fixture
def workplace(tmp_path):
    return Workplace(tmp_path)
