"""Text without secrets. `Masker` knows the secrets of this process by their values; `hide_secrets`
recognises those of other machines by their form or by the name before them."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

_ENDS = "(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)"
SECRET_NAME = re.compile(f"{_ENDS}$", re.IGNORECASE)
"""Environment variables whose values never reach a log, an event or a message."""
MASK = "***"
URL_PASSWORD = re.compile(r"(://[^/@\s:]*:)([^/@\s]+)(?=@)")
"""The password in an address, such as that of a proxy."""
URL_TOKEN = re.compile(rf"[?&][\w.-]*{_ENDS}=([^&#\s]{{8,}})", re.IGNORECASE)
"""A secret in the query of an address, such as `write_token` of trackio's server."""

_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=[\d;\[]m))"
"""Where a secret begins: not within a word, but after an escape of JSON or a terminal's colour."""
_IS = r"\\?[\"']?\s*[=:]\s*\\?[\"']?"
_TEXT = r"(?!\*\*\*|[<=\[]|(?i:require|optional|undefined))[^\s\"'\\,;)}&]{8,}"
_MIXED = rf"(?=[^\s\"'\\,;)}}&]*\d)(?=[^\s\"'\\,;)}}&]*[A-Za-z]){_TEXT}"
"""Values after a name: any text, or one with digits and letters."""
_NAMES = r"secret|passw(?:or)?d|(?:auth|access|hub|write)_token|(?:api|access|account)[_-]?key"
_KEY = r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
_PATTERNS = [
    (words.split(), re.compile(f"({before}){value}"))
    for words, before, value in (
        ("hf_ gh", _EDGE, r"(?:hf_|gh[pousr]_)[A-Za-z0-9]{16,}"),
        ("_pat_ glpat nvapi ya29", _EDGE, r"(?:github_pat_|glpat-|nvapi-|ya29\.)[\w-]{20,}"),
        ("pypi- wandb_v1_ xox", _EDGE, r"(?:pypi-|wandb_v1_|xox[abeprs]-)[\w-]{10,}"),
        ("akia asia", _EDGE, r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("aiza", _EDGE, r"AIza[\w-]{35}"),
        ("sk-", _EDGE, r"sk-(?=[\w-]*[A-Za-z0-9]{16})[\w-]{20,}"),
        ("eyj", _EDGE, r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"),  # JSON web tokens
        # Whole, or cut off after some lines.
        ("private", "", rf"{_KEY}(?:[^-]|-(?!----)){{0,20000}}?-----END [A-Z ]*PRIVATE KEY-----"),
        ("private", "", rf"{_KEY}(?:(?:\s|\\[nrt])*[A-Za-z0-9+/]{{20,}}={{0,2}})*"),
        ("secret passw key _token", rf"(?i:{_NAMES}){_IS}", _TEXT),
        ("token _key _pat", rf"(?i:token|_key|_pat){_IS}", _MIXED),
        ("--", rf"--[\w-]*(?i:token|{_NAMES})(?:[\s=]+|[\"'],\s*[\"'])", _MIXED),
        ("sig", r"(?i:-signature|[?&;]sig(?:nature)?)=", r"[\w.~+/%-]{20,}=*"),
        ("bearer basic", rf"{_EDGE}(?i:bearer|basic)\s+", r"[\w.~+/-]{16,}=*"),
        ("authorization", r"(?i:authorization\W{1,6}token)\s+", r"[\w.~+/-]{16,}=*"),
        ("login", rf"{_EDGE}login\s+\S+\s+password\s+", r"[^\s\"'\\,}]+"),  # ~/.netrc
        ("://", r"\w://", r"(?:[^\s/@:\"'?#]*:[^\s/@\"'?#]+|[^\s/@:\"'?#\\]{20,})(?=@(?!sha\d))"),
    )
]
"""For each kind of secret: words in small letters, and its form, with a group for what stays before
it. Every text with such a secret has at least one of the words."""


class Masker:
    """Masks values of secret environment variables, and secrets in addresses that others hold."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        secrets: set[str] = set()
        for name, value in environment.items():
            secrets |= secrets_in(value)
            if SECRET_NAME.search(name) and not os.path.exists(value):  # noqa: PTH110
                secrets.add(value)
        # Shorter values may be ordinary words.
        words = sorted((word for word in secrets if len(word) >= 8), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, words))) if words else None

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        if self._pattern:
            text = self._pattern.sub(MASK, text)
        return URL_PASSWORD.sub(rf"\1{MASK}", text)


def secrets_in(text: str) -> set[str]:
    """The passwords and tokens in the addresses of `text`, as written and as programs read them."""
    secrets = [password for _, password in URL_PASSWORD.findall(text)] + URL_TOKEN.findall(text)
    return {*secrets, *map(unquote_plus, secrets)}


def hide_secrets(text: str) -> str:
    """`text` with MASK in place of all that looks like an access token, password or private key.
    What has no form of its own is recognised by the name before it, as in `WANDB_API_KEY=…`."""
    small = text.lower()
    for words, pattern in _PATTERNS:
        if any(word in small for word in words):
            text = pattern.sub(rf"\1{MASK}", text)
    return text


def without_secrets(value: Any, key: str = "") -> Any:
    """A document without secrets, also those that keys such as `HF_TOKEN` hold."""
    if isinstance(value, dict):
        return {name: without_secrets(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, key) for item in value]
    if not isinstance(value, str):
        return value
    return MASK if value and SECRET_NAME.search(key) else hide_secrets(value)
