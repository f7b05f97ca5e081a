"""Secrets of every kind, what they are put into, and texts that hold none: what the sweep of masking walks through.

Whatever looks like a key here is put together as it is used, so that no scanner of the repository sees one.
"""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

from loomctl.kit.text import secret_kinds

_ALPHABETS = {
    "w": string.ascii_letters + string.digits, "u": string.ascii_uppercase + "234567", "h": "0123456789abcdef",
    "d": string.digits, "l": string.ascii_lowercase + string.digits, "b": string.ascii_letters + string.digits + "+/",
}  # fmt: skip
_DICE = random.Random(1616)


def made(example: str) -> str:
    """Give an example of the table with random characters in the places of `<w20>` and the like."""
    return re.sub(
        r"<([wuhdlb])([0-9]+)>", lambda found: "".join(_DICE.choices(_ALPHABETS[found[1]], k=int(found[2]))), example
    )


OPTION = "hunter" + "22"  # the value of the examples of commands


class Case(NamedTuple):
    """A secret in its text. kind: as it is told, text: one or more lines, secret: what must not be left of it."""

    kind: str
    text: str
    secret: str


def tokens() -> Iterator[Case]:
    """Give a token for each beginning of the table."""
    for kind, prefixes, _, example, _ in secret_kinds.TOKENS:
        for prefix in prefixes:
            rest = made(example)
            yield Case(kind, prefix + rest, rest[-12:])
    for kind, _, _, _, example, _ in secret_kinds.AROUND_A_SIGN:
        token = made(example)
        yield Case(kind, token, token[:9] if kind == "mailchimp key" else token[-12:])
    token = made("M<w23>.<w6>.<w38>")
    yield Case("discord token", token, token[-12:])
    for _, _, example, _ in secret_kinds.COMMANDS:
        yield Case("password", example, OPTION)


def private_key(label: str = "RSA PRIVATE KEY") -> str:
    """Give a private key as OpenSSL writes it."""
    lines = [made("<b64>") for _ in range(4)] + [made("<b22>") + "=="]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


def _key_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if "-----" not in line]


MIXED, LETTERS, SHORT = "hunter" + "22x", "sword" + "fish", "a1b2" + "c3d4"
RANDOM = made("<w32>") + "7aB"
_HEX = made("<h40>")

ASSIGNED = [
    *(
        f"{name}={value}"
        for name in ("DB_PASSWORD", "DB_PASS", "PGPASSWORD", "MYSQL_PWD")
        for value in (MIXED, LETTERS)
    ),
    *(f"export SMTP_PASS={value}" for value in (MIXED, LETTERS)),
    *(f"password: {value}" for value in (MIXED, LETTERS)),
    *(f"ansible_ssh_pass: {value}" for value in (MIXED, LETTERS)),
    *(f"password={value}" for value in (MIXED, LETTERS)),
    *(f'{{"user": "bob", "pass": "{value}"}}' for value in (MIXED, LETTERS)),
    *(f'{{"password": "{value}", "a": 1}}' for value in (MIXED, LETTERS)),
    *(f"define('DB_PASSWORD', '{value}');" for value in (MIXED, LETTERS)),
    *(f"os.environ.setdefault('DB_PASSWORD', '{value}')" for value in (MIXED, LETTERS)),
    *(f"host=db user=bob password={value} dbname=shop" for value in (MIXED, LETTERS)),
    *(f"host=db user=bob password={value}" for value in (MIXED, LETTERS)),
    *(f"Server=db;Uid=sa;Password={value};Pooling=true" for value in (MIXED, LETTERS)),
    *(f"[client]\nuser = bob\npassword = {value}" for value in (MIXED, LETTERS)),
    *(f"<password>{value}</password>" for value in (MIXED, LETTERS)),
    *(f"machine h login bob password {value}" for value in (MIXED, LETTERS)),
    *(f"postgres://bob:{value}@db.example.org:5432/app" for value in (MIXED, LETTERS, f"{MIXED}/{LETTERS}")),
    *(f"https://example.org/?password={value}&a=1" for value in (MIXED, LETTERS)),
    *(f"db.example.org:5432:shop:bob:{value}" for value in (MIXED, LETTERS)),
    *(f"- name: DB_PASSWORD\n  value: {value}" for value in (MIXED, LETTERS)),
    *(f'{{"name": "DB_PASSWORD", "value": "{value}"}}' for value in (MIXED, LETTERS)),
    *(f"tool --password={value} db" for value in (MIXED, LETTERS)),
    *(f"password:\n  {quote}{MIXED}{quote}" for quote in ("", '"', "'")),
    *(f"password: {sign}\n    {value}" for sign in ("|", ">-", "|2") for value in (MIXED, LETTERS)),
    f'"password":\n  "{LETTERS}"',
    f"password = (\n    '{LETTERS}'\n)",
    f"api_key: |\n  {RANDOM}",
    f"tool --password {MIXED} db",
    f"| password | {MIXED} |",
    f'password: str = "{LETTERS}"',
    f"API_KEY={RANDOM}",
    f'const apiKey: string = "{RANDOM}";',
    f"aws_secret_access_key = {RANDOM}/{RANDOM}",
    f'token: "{_HEX}"',
    f"token: {_HEX}",
    f"APP_KEY=base64:{RANDOM}=",
    f"AccountName=x;AccountKey={RANDOM}{RANDOM}==;EndpointSuffix=core.windows.net",
    *(f"https://example.org/x?{name}={SHORT}" for name in ("token", "key", "secret", "api_key", "access_token")),
    *(f"https://example.org/x?a=1&{name}={SHORT}&b=2" for name in ("token", "key", "secret")),
    *(f"curl -H '{name}: {SHORT}' x" for name in ("X-Api-Key", "X-Auth-Token", "Private-Token", "Token", "X-Secret")),
    *(f"{name}: {SHORT}" for name in ("X-Api-Key", "X-Auth-Token", "Private-Token", "Token")),
    *(f"Authorization: {scheme} 00{RANDOM}" for scheme in ("Bearer", "Token", "SSWS", "GenieKey", "Bot", "Custom")),
    f"Authorization: Basic {base64.b64encode(f'bob:{MIXED}'.encode()).decode()}",
    f'Authorization: Digest username="bob", realm="x", uri="/", response="{made("<h32>")}"',
    f"Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3, Signature={made('<h64>')}",
    f"curl -H 'Authorization: Bearer {RANDOM}' x",
    f"Cookie: session={_HEX}; a=b",
    f"//registry.example.org/:_auth={made('<w24>')}==",
    f"https://api.telegram.org/bot{made('<d10>')}:A" + f"A{made('<w33>')}/sendMessage",
    f"git clone https://{RANDOM}@github.com/x/y.git",
]
_HELD = re.compile("|".join(map(re.escape, (MIXED, LETTERS, SHORT, RANDOM))))


def assigned() -> Iterator[Case]:
    """Give values in the places that make them secrets."""
    for text in ASSIGNED:
        held = _HELD.search(text)
        secret = held[0] if held else max(re.findall(r"[A-Za-z0-9]{12,}", text), key=len)
        yield Case("assigned", text, secret)


def private_keys() -> Iterator[Case]:
    """Give private keys, each as a text of several lines."""
    for label in ("RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY", "PGP PRIVATE KEY BLOCK"):
        text = private_key(label)
        yield Case("private key", text, _key_lines(text)[1])
    text = private_key()
    yield Case("private key without its end", text.rpartition("\n")[0], _key_lines(text)[-1][:12])
    yield Case("private key cut short", text[:200], _key_lines(text)[1][:12])
    yield Case("private key without its beginning", text.partition("\n")[2], _key_lines(text)[0])
    encoded = base64.b64encode(text.encode()).decode()
    yield Case("private key in base64", f"tls.key: {encoded}", encoded[-40:])
    yield Case(
        "private key in base64", "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76)), encoded[160:200]
    )
    lines = [made("<b64>") for _ in range(3)]
    yield Case("private key", "Private-Lines: 3\n" + "\n".join(lines) + "\nPrivate-MAC: 1", lines[2])


def all_cases() -> list[Case]:
    """Give every case, in the order of the table."""
    return [*tokens(), *assigned(), *private_keys()]


def _every_line(before: Callable[[int], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(before(number) + line for number, line in enumerate(text.split("\n"), 7))


def _log(number: int) -> str:
    return f"2026-11-24T14:0{number % 10}:12.{number:03} INFO [worker-{number}] "


SURROUNDINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: f"before\n{text}\nafter",
    "JSON": lambda text: json.dumps({"a": 1, "out": f"before\n{text}\nafter"}),
    "JSON in JSON": lambda text: json.dumps({"body": json.dumps({"out": f"before\n{text}\nafter"})}),
    "repr": lambda text: repr(f"before\n{text}\nafter"),
    "repr of JSON": lambda text: repr(json.dumps(f"before\n{text}\r\nafter")),
    "URL": lambda text: "https://example.org/?q=" + quote(f"before\n{text}\nafter", safe=""),
    "URL in URL": lambda text: "https://example.org/?q=" + quote(quote(f"before\n{text}\nafter", safe=""), safe=""),
    "YAML, flow": lambda text: f"x: {{out: {json.dumps(text)}, a: 1}}",
    "YAML, block": lambda text: "x:\n  out: |\n" + _every_line(lambda _: "    ")(text) + "\n  a: 1",
    "YAML, next line": lambda text: "out:\n" + _every_line(lambda _: "  ")(text) + "\na: 1",
    "log line": _every_line(_log),
    "cat -n": _every_line(lambda number: f"{number:6}\t"),
    "numbered →": _every_line(lambda number: f"{number:6}→"),
    "diff +": lambda text: "@@ -1,0 +1,9 @@\n" + _every_line(lambda _: "+")(text),
    "diff -": lambda text: "@@ -1,9 +1,0 @@\n" + _every_line(lambda _: "-")(text),
    "shell export": lambda text: f"export SETTING='{text}'",
    ".env": lambda text: f'A=1\nSETTING="{text}"\nB=2',
}
