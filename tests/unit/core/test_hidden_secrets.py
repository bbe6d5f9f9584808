"""Secrets are hidden by their form, their name or their value."""

import json

import pytest

from feedrate.core.secrets import MASK, hide_secrets, without_secrets

KEY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\\nAAAAMwAAAAtzc2gtZWQyNTUxOQAAACD"
HIDDEN = {
    "token hf_AbCdEfGhIjKlMnOpQr of the hub": "hf_AbC",
    "ghp_0123456789abcdefABCD": "ghp_0",
    "github_pat_11ABCDEFG0abcdefghijkl_xyz": "github_pat",
    "AKIAIOSFODNN7EXAMPLE": "AKIA",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY": "wJalr",
    '"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"': "0123456789abcdef",
    '{\\"HF_TOKEN\\": \\"abcdefgh12345678\\"}': "abcdefgh",
    "login me password 0123456789abcdef": "0123456789abcdef",
    "Authorization: Bearer abcdefghijklmnop.qrst": "abcdefghijklmnop",
    "https://me:s3cr3t@host/x": "s3cr3t",
    "http://host:7860/?write_token=Ab3dEf6hIj-_9&project=p": "Ab3dEf",
    '"write_token": "Ab3dEf6hIj-_9"': "Ab3dEf",
    "sk-proj-abcdefghijklmnopqrstuv": "sk-proj",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij": "eyJzdWI",
    "AccountName=me;AccountKey=abcdEFGH0123+/abcdEFGH==;EndpointSuffix=x": "abcdEFGH0123",
    "https://host/x?sv=1&sig=abcdEFGH0123%2Fabcdefgh%3D&se=2": "abcdEFGH0123",
    "https://host/x?X-Amz-Date=1&X-Amz-Signature=0123456789abcdef0123456789abcdef": "0123456789abc",
    "aws_session_token = IQoJb3JpZ2luX2VjEJ3//abc": "IQoJb3",
    "hf_token=abcdefgh0123456789": "abcdefgh0123",
    'login(token="abcdefgh0123456789")': "abcdefgh0123",
    "Authorization: token abcdefgh0123456789": "abcdefgh0123",
    '"x-api-key": "abcdefgh0123"': "abcdefgh0123",
    "train --hub-token abcdefgh0123 --x": "abcdefgh0123",
    '["train", "--password", "abcdefgh0123"]': "abcdefgh0123",
    "https://abcdefgh0123456789abcdef@host/x.git": "abcdefgh0123",
    f"pypi-AgEIcHlwaS5vcmc{'abcDEF123_-' * 4}": "pypi-AgEI",
    f"ya29.a0{'abcDEF123_-' * 4}": "ya29.a0",
    f"nvapi-{'abcDEF123_-' * 4}": "nvapi-abc",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{KEY}\\n-----END OPENSSH PRIVATE KEY-----": "AAAAMw",
    f"cut off: -----BEGIN RSA PRIVATE KEY-----\n{KEY}": "b3Blbn",
}


@pytest.mark.parametrize(("text", "secret"), HIDDEN.items())
def test_secrets_are_hidden(text, secret):
    hidden = hide_secrets(text)
    assert secret not in hidden
    assert MASK in hidden
    assert hide_secrets(hidden) == hidden


FORMS = [text for text, secret in HIDDEN.items() if text.startswith(secret)]
FORMS += [
    "bearer abcdefghijklmnop.qrst",
    "basic abcdefghijklmnopqrst",
    "login me password 01234567",
]


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize(
    "before", ["\\n", "\\t", "\x1b[1m", "\\u001b[0;32m", "model_", "hf_oauth_"]
)
def test_secrets_are_hidden_after_escapes_colours_and_underscores(before, text):
    hidden = hide_secrets(f"x {before}{text} y")
    assert text[:-3] not in hidden
    assert hidden.startswith(f"x {before}")


def test_words_that_end_like_the_start_of_a_secret_stay():
    text = "task-abcdefghijklmnopqrstuv xhf_AbCdEfGhIjKlMnOpQr 0ghp_0123456789abcdefABCD"
    assert hide_secrets(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "commit 0123456789abcdef0123456789abcdef01234567",
        '{"event": "step", "tokens": 12345678, "max_tokens": 12345678}',
        "pad_token=<pad>; num_tokens: 128; the key = value",
        "https://huggingface.co/facebook/bridgetower-base:main",
        "-----BEGIN PUBLIC KEY-----",
        "docker://ubuntu:22.04@sha256:0123456789abcdef0123456789abcdef",
        "docker://a-long-name-of-an-image@sha256:0123456789abcdef0123456789abcdef",
        "https://host:8080?x=a@b https://host:8080/a@b ssh://me@host",
        "/data/sk-something-long-folder-name/ sk-something-long-folder-name",
        "UNK_TOKEN=[UNKNOWN] unk_token: '[UNKNOWN]' next token: image_path_column",
        "SORT_KEY: image_path_column",
        "{'password': 'required', 'token': 'optional'} --token is required [--hub_token HUB_TOKEN]",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "bridgetower-dataloading/cpu/workers=2~decode=reference~strategy=ddp/rep1",
        '"data_digest": "0123456789abcdef0123456789abcdef", "signature=0123456789abcdef01234"',
        "token 0123456789abcdef01 of 12345678; authorization: tokens are read from HF_TOKEN only",
    ],
)
def test_what_is_no_secret_stays(text):
    assert hide_secrets(text) == text


def test_json_stays_json():
    value = {"args": {"hub_token": "abcdefghijkl", "api_key": "a b c d e f g h", "x": [1]}}
    hidden = json.loads(hide_secrets(json.dumps(value)))
    assert hidden["args"]["hub_token"] == MASK
    assert hidden["args"]["x"] == [1]
    netrc = {"message": "login me password 0123456789abcdef", "x": [1]}
    assert json.loads(hide_secrets(json.dumps(netrc)))["x"] == [1]
    assert json.loads(hide_secrets(json.dumps(netrc | {"y": "login a password b"})))["x"] == [1]


def test_a_document_hides_what_its_keys_call_secret():
    value = {"a": [{"HF_TOKEN": "x", "count": 1}], "b": "password=abcdefgh", "c": None}
    hidden = {"a": [{"HF_TOKEN": MASK, "count": 1}], "b": f"password={MASK}", "c": None}
    assert without_secrets(value) == hidden
