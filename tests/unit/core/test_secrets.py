"""Tokens never come out."""

from hypothesis import given
from hypothesis import strategies as st

from feedrate.core.secrets import MASK, Masker

TOKEN = "hf_abcdefghijklmnop"


def test_tokens_of_the_environment_are_masked_wherever_they_stand():
    mask = Masker({"HF_TOKEN": TOKEN, "AWS_SECRET_ACCESS_KEY": "s3cr3t-s3cr3t", "HOME": "/root"})
    text = f"GET https://user:{TOKEN}@host {TOKEN} s3cr3t-s3cr3t /root"
    assert mask(text) == f"GET https://user:{MASK}@host {MASK} {MASK} /root"


def test_the_password_in_an_address_is_masked():
    mask = Masker({"MLFLOW_TRACKING_URI": "https://me:pa55word@host:5000", "HOME": "/root"})
    assert mask("no answer: pa55word at me@host") == f"no answer: {MASK} at me@host"


def test_tokens_in_the_query_of_an_address_are_masked_also_as_programs_read_them():
    address = "http://host:7860/?project=p&write_token=s3cr3t%2Ds3cr3t&api_key=k3yk3yk3y#x"
    mask = Masker({"TRACKIO_SERVER_URL": address})
    assert mask(address) == (f"http://host:7860/?project=p&write_token={MASK}&api_key={MASK}#x")
    assert (
        mask("X-Trackio-Write-Token: s3cr3t-s3cr3t of p") == f"X-Trackio-Write-Token: {MASK} of p"
    )


def test_a_short_password_is_masked_in_addresses_alone():
    mask = Masker({"http_proxy": "http://proxy:1@host", "https_proxy": "http://me:train@host"})
    text = "train_loss 0.11, 1 step; http://proxy:1@host http://me:train@host:8080"
    masked = f"train_loss 0.11, 1 step; http://proxy:{MASK}@host http://me:{MASK}@host:8080"
    assert mask(text) == masked


def test_a_token_that_begins_as_another_is_masked_whole():
    mask = Masker({"A_TOKEN": "12345678", "B_TOKEN": "1234567890"})
    assert mask("1234567890") == MASK


def test_paths_and_short_values_are_no_secrets(tmp_path):
    environment = {"HF_TOKEN": "", "X_TOKEN": "1", "SSH_KEY_TOKEN": str(tmp_path)}
    assert Masker(environment)(f"1 {tmp_path}") == f"1 {tmp_path}"


def test_variables_with_other_names_are_left():
    assert Masker({"TOKENIZERS_PARALLELISM": "false-false"})("false-false") == "false-false"


@given(st.text(), st.text(min_size=8).filter(lambda s: "\0" not in s and "/" not in s))
def test_no_text_gives_a_token_away(text, token):
    masked = Masker({"HF_TOKEN": token})(f"{text}{token}{text}")
    assert token not in masked or token in MASK * 20
