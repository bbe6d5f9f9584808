"""A small tokenizer of the dataset's own, for models with random weights and no hub."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from feedrate.files import write_json, write_text

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
