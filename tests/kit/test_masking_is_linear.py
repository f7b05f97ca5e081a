"""Masking looks at each letter of a text a bounded number of times: counted, not timed."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, SupportsIndex

import pytest

from loomctl.kit.text.secrets import mask

BEGIN, END = "-----BEGIN " + "PRIVATE KEY-----", "-----END " + "PRIVATE KEY-----"
UNITS = [
    *(":5432:", "a:5432:", "a:*:b:c:", ":*:", "x:5432:y:z:w ", "://a:b", "://a:b/1", "a:/b", "@://a:", "://"),
    *(
        "Private-Lines: 3\n",
        "Private-Lines: 3 ",
        BEGIN,
        f"{BEGIN}\n{'A' * 64}\n",
        END,
        "A" * 64 + "\n",
        "LS0tLS1CRUdJTi,",
    ),
    *(
        *("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t,", "---", "-----BEGIN A A A A ", "\\", "\\n", "\\\\n", "%25", "%e4"),
        "&amp;",
    ),
    *(
        *("\\u003d", "password=", "password: |\n", "password:\n ", "password = (", "[x]\npassword = a"),
        "name: PASSWORD\n value",
    ),
    *("define('password'", '"password", ', "pass ", "pw=", 'token="', 'token=\\"', 'Authorization: Digest a="'),
    *("Authorization: Digest a=b,", "Authorization: ", "cookie: a=", 'auth": "', "_auth = ", "curl -u ", "mysql -p"),
    *("?token=", "x=y password=", "--password ", "sig=", "SK", "ACa1", "sk-", "M" * 24 + ".", ":AA", "-us", "Q~"),
    *("\x1b[", "[masked: ", "bearer ", "a1B2", "key", " ", "\r", "İtoken=", "|password|", "eyJ.", "eyJaaaaaaaa."),
    *("password='password=\"password=`", "\\n%0A&amp;+", "api_key=abc123 ", "a+%3D", "E: pw=abc123d "),
]


class Counted(str):
    """A text that counts how many of its letters are looked at in searches and slices."""

    __slots__ = ()
    looked_at = 0

    def _count(self, letters: int) -> None:
        Counted.looked_at += max(letters, 1)

    def find(self, sub: str, start: Any = 0, end: Any = None) -> int:
        at = super().find(sub, start, end)
        self._count((at if at >= 0 else len(self) if end is None else min(end, len(self))) - start)
        return at

    def rfind(self, sub: str, start: Any = 0, end: Any = None) -> int:
        at = super().rfind(sub, start, end)
        self._count((len(self) if end is None else min(end, len(self))) - max(at, start))
        return at

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        part = super().__getitem__(key)
        self._count(len(part))
        return part


def work(text: str) -> int:
    """Give how many letters were looked at and how many functions called to mask a text."""
    calls = 0

    def called(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    Counted.looked_at = 0
    sys.setprofile(called)
    try:
        mask(Counted(text))
    finally:
        sys.setprofile(None)
    return calls + Counted.looked_at


@pytest.mark.slow
def test_four_times_the_text_is_four_times_the_work() -> None:
    for unit in UNITS:
        short, long = (work(unit * (size // len(unit)) + "@") for size in (3_000, 12_000))
        assert long < 4.6 * short + 20_000, unit
        assert long < 1_000 * 12_000, unit
