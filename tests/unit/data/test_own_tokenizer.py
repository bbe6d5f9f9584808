import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from feedrate.data.prepare import VOCABULARY, train_tokenizer

CAPTIONS = [f"A witch and {n} penguins on the moon" for n in range(200)]


def test_transformers_loads_it_with_roberta_s_special_tokens(tmp_path):
    train_tokenizer(CAPTIONS, tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert len(tokenizer) <= VOCABULARY
    batch = tokenizer(["A witch", "moon"], padding="max_length", max_length=12, truncation=True)
    assert {len(ids) for ids in batch["input_ids"]} == {12}
    ids = batch["input_ids"][1]
    assert ids[0] == 0
    assert ids[sum(batch["attention_mask"][1]) - 1] == 2
    assert ids[-1] == 1
    pair = tokenizer("moon", "witch")["input_ids"]
    assert pair.count(2) == 3


def test_the_same_captions_in_any_order_give_the_same_files(tmp_path):
    shuffled = random.Random(1).sample(CAPTIONS, len(CAPTIONS)) + CAPTIONS[:9]
    train_tokenizer(CAPTIONS, tmp_path / "a")
    train_tokenizer(shuffled, tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a/tokenizer_config.json").read_text())["pad_token"] == "<pad>"


@given(st.text(max_size=40))
@settings(max_examples=50)
def test_any_text_survives_coding_and_decoding(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "own-tokenizer"
    if not folder.exists():
        train_tokenizer(CAPTIONS, folder)
        any_text = PreTrainedTokenizerFast.from_pretrained(folder)
        test_any_text_survives_coding_and_decoding.tokenizer = any_text
    tokenizer = test_any_text_survives_coding_and_decoding.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert 3 not in ids
