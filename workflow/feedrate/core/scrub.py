"""Secrets in text: what looks like an access token, a password or a private key.

`Masker` in errors.py knows the secrets of this process by their values. This module recognises
those of other machines by their form or by the name before them.
"""

import re
from typing import Any

from feedrate.core.errors import SECRET_NAME, Masker

SECRET = "(token)"
"""The text that replaces a secret."""

_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=[\d;\[]m))"
"""Where a secret begins: not within a word, but after an escape of JSON or a terminal's colour."""
_KEY = "-----BEGIN [A-Z ]*PRIVATE KEY-----"
_TOKENS = {
    "hf_": r"hf_[A-Za-z0-9]{16,}",  # Hugging Face
    "gh": r"gh[pousr]_[A-Za-z0-9]{16,}",  # GitHub
    "github_pat": r"github_pat_\w{22,}",
    "glpat": r"glpat-[\w-]{20,}",  # GitLab
    "akia": r"AKIA[0-9A-Z]{16}(?![A-Za-z0-9])",  # AWS
    "asia": r"ASIA[0-9A-Z]{16}(?![A-Za-z0-9])",
    "wandb_v": r"wandb_v1_\w{20,}",  # Weights & Biases; older keys have no form of their own
    "sk-": r"sk-(?=[\w-]*[A-Za-z0-9]{16})[\w-]{20,}",  # OpenAI, Anthropic; no names of words
    "xox": r"xox[abeprs]-[\w-]{10,}",  # Slack
    "aiza": r"AIza[\w-]{35}",  # Google
    "ya29.": r"ya29\.[\w-]{20,}",
    "nvapi-": r"nvapi-[\w-]{20,}",  # NVIDIA
    "pypi-": r"pypi-[\w-]{40,}",
    "eyj": r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}",  # JSON web tokens
}
"""Forms of secrets, each with a part in small letters without which a text has none."""
_PRIVATE_KEY = (  # whole, or cut off after some lines
    rf"{_KEY}(?:[^-]|-(?!----)){{0,20000}}?-----END [A-Z ]*PRIVATE KEY-----"
    rf"|{_KEY}(?:(?:\s|\\[nrt])*[A-Za-z0-9+/]{{20,}}={{0,2}})*"
)
_IS = r"\\?[\"']?\s*[=:]\s*\\?[\"']?"
_NO_SECRET = r"(?!\(token\)|[<=\[]|(?i:require|optional|undefined))"
_TEXT = rf"{_NO_SECRET}[^\s\"'\\,;)}}&]{{8,}}"
_MIXED = rf"(?=[^\s\"'\\,;)}}&]*\d){_TEXT}"
_LONG = rf"(?=[\w.~+/%-]*[A-Za-z])(?=[\w.~+/%-]*\d){_NO_SECRET}[\w.~+/%-]{{16,}}=*"
"""Values: any text; one with a digit, or a long one, after names that others share."""
_WORDS = ("secret", "passwd", "password", "auth_token", "access_token", "hub_token", "write_token")
_OPTION = "token|password|passwd|secret|api[_-]?key"
_BEFORE = (
    *((name, rf"((?i:{name}){_IS}){_TEXT}") for name in _WORDS),
    ("key", rf"((?i:(?:api|access|account|secret)[_-]?key){_IS}){_TEXT}"),
    ("_key", rf"(_KEY{_IS}){_MIXED}"),
    ("token", rf"(TOKEN{_IS}){_TEXT}"),
    ("token", rf"((?i:token){_IS}){_LONG}"),
    ("_pat", rf"(_PAT{_IS}){_TEXT}"),
    ("--", rf"(--[\w-]*(?i:{_OPTION})(?:[\s=]+|[\"'],\s*[\"'])){_MIXED}"),
    ("sig", r"((?i:-signature|[?&;]sig(?:nature)?)=)[\w.~+/%-]{20,}=*"),  # signed addresses
    ("bearer", rf"({_EDGE}(?i:bearer)\s+)[\w.~+/-]{{16,}}=*"),
    ("basic", rf"({_EDGE}(?i:basic)\s+)[\w.~+/-]{{16,}}=*"),
    ("authorization", r"((?i:authorization)\W{1,6}(?i:token)\s+)[\w.~+/-]{16,}=*"),
    ("login", rf"({_EDGE}login\s+\S+\s+password\s+)[^\s\"'\\,}}]+"),  # ~/.netrc
    ("://", r"(\w://)(?:[^\s/@:\"'?#]*:[^\s/@\"'?#]+|[^\s/@:\"'?#\\]{20,})(?=@(?!sha\d))"),
)
"""What precedes secrets without a form of their own; the group is kept."""
_PATTERNS = [(part, re.compile(_EDGE + form), SECRET) for part, form in _TOKENS.items()]
_PATTERNS.append(("private key", re.compile(_PRIVATE_KEY), SECRET))
_PATTERNS += [(part, re.compile(form), rf"\1{SECRET}") for part, form in _BEFORE]


def scrub(text: str) -> str:
    """`text` without secrets: those of this process, and what looks like one."""
    return Masker()(hide_secrets(text))


def hide_secrets(text: str) -> str:
    """`text` with SECRET in place of all that looks like an access token, password or private key.
    What has no form of its own is recognised by the name before it, as in `WANDB_API_KEY=…`."""
    small = text.lower()
    for part, pattern, instead in _PATTERNS:
        if part in small:
            text = pattern.sub(instead, text)
    return text


def without_secrets(value: Any, key: str = "") -> Any:
    """A document without secrets: those that its texts show, and what keys such as `HF_TOKEN` hold.
    `key` is the value's own."""
    if isinstance(value, dict):
        return {name: without_secrets(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, key) for item in value]
    if not isinstance(value, str):
        return value
    return SECRET if value and SECRET_NAME.search(key) else hide_secrets(value)
