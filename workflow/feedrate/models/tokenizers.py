"""From a row's text to token numbers: the prepared tokenizer, or a classifier's classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import torch
from transformers import PreTrainedTokenizerFast

from feedrate.core.files import write_json
from feedrate.data.manifest import SAMPLES, TOKENIZER
from feedrate.models.build import ModelError

UNKNOWN = -100
"""The class of a value that the training split lacks; cross-entropy ignores it."""


def prepared_tokenizer(prepared: Path, vocabulary: int, size: str) -> Any:
    """The tokenizer of the prepared data, for a model with room for `vocabulary` tokens.

    Raises ModelError if it is missing, too large, or cannot pad.
    """
    folder = prepared / TOKENIZER
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder}: no tokenizer there; prepare the data again")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    if len(tokenizer) > vocabulary:
        raise ModelError(
            f"the prepared tokenizer has {len(tokenizer)} tokens, model.size {size} takes at most "
            f"{vocabulary}"
        )
    if tokenizer.pad_token_id is None:
        raise ModelError("the prepared tokenizer has no padding token")
    return tokenizer


def check_length(max_tokens: int, longest: int) -> None:
    """Raise ModelError if captions may be longer than the model has positions."""
    if max_tokens > longest:
        raise ModelError(f"loader.max_tokens: {max_tokens} is more than the model's {longest}")


class ClassTokenizer:
    """A classifier's vocabulary: one token per row, the number of its class."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: the classes, each once, in the order of their numbers."""
        self.names = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of_column(cls, prepared: Path, column: str, outputs: int) -> "ClassTokenizer":
        """The distinct values of a column in the training split, sorted.

        Raises ModelError if the column is missing or empty, or has more values than the model has
        `outputs`.
        """
        path = prepared / SAMPLES
        known = pyarrow.parquet.read_schema(path).names
        if column not in known:
            raise ModelError(f"loader.label: {path} has no column {column!r}; it has {known}")
        values = pyarrow.parquet.read_table(
            path, columns=[column], filters=[("split", "=", "train")]
        )[column].to_pylist()
        distinct = sorted({value for value in values if value is not None})
        if not distinct:
            raise ModelError(f"loader.label: the column {column!r} is empty in {path}")
        if len(distinct) > outputs:
            raise ModelError(
                f"loader.label: the column {column!r} has {len(distinct)} values, the model has "
                f"{outputs} classes"
            )
        return cls([str(value) for value in distinct])

    def __call__(self, texts: Sequence[str], **_: Any) -> dict[str, torch.Tensor]:
        """input_ids (rows, 1): the class of each text; attention_mask (rows, 1): ones."""
        numbers = torch.tensor([[self._numbers.get(text, UNKNOWN)] for text in texts])
        return {"input_ids": numbers, "attention_mask": torch.ones_like(numbers)}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the names as `classes.json`."""
        write_json(Path(folder) / "classes.json", self.names)
