"""Planted keys of the usual kinds, put together when a test runs so that no scanner of the repository sees one."""

from __future__ import annotations

import random
import string

_DICE = random.Random(258)
_ALL = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def _made(count: int, alphabet: str = _ALL) -> str:
    return "".join(_DICE.choices(alphabet, k=count))


# kind: (what stands in a text, what of it must never be seen)
_SECRETS = {
    "aws access key": "AK" + "IA" + _made(16, string.ascii_uppercase + "234567"),
    "aws secret": _made(40),
    "github": "gh" + "p_" + _made(36),
    "github fine-grained": "github" + "_pat_" + _made(22) + "_" + _made(59),
    "gitlab": "glp" + "at-" + _made(20),
    "slack": "xo" + "xb-" + _made(12, string.digits) + "-" + _made(24),
    "stripe": "sk" + "_live_" + _made(24),
    "google": "AI" + "za" + _made(35),
    "openai": "sk" + "-proj-" + _made(64),
    "anthropic": "sk" + "-ant-api03-" + _made(93),
    "npm": "np" + "m_" + _made(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + _made(120),
    "jwt": "ey" + "J" + _made(33) + ".ey" + "J" + _made(60) + "." + _made(43),
    "basic auth": _made(14),
    "password": "hun" + "ter2" + _made(6),
    "env": _made(30),
    "azure": _made(86),
    "twilio": "S" + "K" + _made(32, _HEX),
    "sendgrid": "S" + "G." + _made(22) + "." + _made(43),
    "telegram": _made(10, string.digits) + ":A" + "A" + _made(33),
    "discord": "M" + _made(23) + "." + _made(6) + "." + _made(38),
    "private key": "\n".join(_made(64) for _ in range(3)),
}
_AROUND = {
    "aws secret": "aws_secret_access_key = {}",
    "basic auth": "https://bot:{}@example.org/x.git",
    "password": "password={}",
    "env": "API_SECRET={}",
    "azure": "AccountName=x;AccountKey={}==;EndpointSuffix=core.windows.net",
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\n{}\n-----END " + "RSA PRIVATE KEY-----",
}

PLANTED: dict[str, str] = {kind: _AROUND.get(kind, "{}").format(secret) for kind, secret in _SECRETS.items()}
"""kind: a text that holds the key."""

ON_A_LINE: dict[str, str] = {kind: text for kind, text in PLANTED.items() if "\n" not in text}

TEXT = "\n".join(f"{number}. {text}" if "\n" not in text else text for number, text in enumerate(PLANTED.values()))
"""A text that holds them all, each on lines of its own."""

LINE = "; ".join(text for kind, text in ON_A_LINE.items() if kind not in ("env", "azure", "password"))
"""A line that holds most of them."""


def seen(text: str) -> list[str]:
    """Name the kinds of which any part of eight or more characters stands in a text, escaped or not."""
    found = []
    for kind, secret in _SECRETS.items():
        for line in secret.split("\n"):
            tail = line[-12:] if kind != "password" else line
            middle = line[len(line) // 2 - 4 : len(line) // 2 + 8] if len(line) > 24 else tail
            if tail in text or middle in text:
                found.append(kind)
                break
    return found
