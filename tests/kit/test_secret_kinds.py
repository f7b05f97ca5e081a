"""The table of secrets, walked through: each kind in whatever it is put into, and the texts that are none."""

from __future__ import annotations

import html
import importlib
import json
import re
import string
import sys
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.kit.text import secret_kinds, secrets
from loomctl.kit.text.secrets import mask
from tests.helpers import secret_cases
from tests.helpers.tables import each

CASES = secret_cases.all_cases()


@pytest.mark.shows("the keys of common services")
def test_each_row_has_an_example_that_is_masked_and_a_text_that_is_not() -> None:
    """The kind of the example is the row's; what only begins like it is not touched, wherever it stands."""
    for kind, prefixes, _, example, other in secret_kinds.TOKENS:
        for prefix in prefixes:
            token = prefix + secret_cases.made(example)
            assert mask(token) == (f"[masked: {kind}]", 1)
            assert mask(f"x {token} y") == (f"x [masked: {kind}] y", 1)
        assert mask(other) == (other, 0)
    for kind, _, sign, _, example, other in secret_kinds.AROUND_A_SIGN:
        assert mask(f"x {secret_cases.made(example)} y") == (f"x [masked: {kind}] y", 1), sign
        assert mask(other) == (other, 0)
    for name, _, example, other in secret_kinds.COMMANDS:
        assert mask(example) == (example.replace(secret_cases.OPTION, "[masked: password]"), 1), name
        assert mask(other) == (other, 0)


def test_the_shortest_token_of_each_row_is_looked_for() -> None:
    """Beginnings are looked for in long words alone: no pattern of the table takes less than such a word."""
    parser = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    for kind, prefixes, body, *_ in secret_kinds.TOKENS:
        least = min(map(len, prefixes)) + parser.parse(body).getwidth()[0]
        assert least >= secrets._SHORTEST_WORD or kind == "json web token", kind


def test_no_other_text_of_the_table_is_taken_for_a_secret_where_it_is_encoded() -> None:
    rows = (*secret_kinds.TOKENS, *secret_kinds.AROUND_A_SIGN, *secret_kinds.COMMANDS)
    for other in [row[-1] for row in rows]:
        for put in (json.dumps, repr, quote):
            assert mask(put(other)) == (put(other), 0)


def test_no_beginning_has_a_letter_that_an_encoding_changes() -> None:
    """The beginnings are looked for in the text as it is; only those that are there, in what was decoded."""
    plain = set(string.ascii_letters + string.digits + "_.-")
    for _, prefixes, *_ in secret_kinds.TOKENS:
        for prefix in prefixes:
            assert set(prefix) <= plain
            assert all(prefix in put(prefix) for put in (json.dumps, repr, quote))


@each("name", secret_cases.SURROUNDINGS)
@pytest.mark.shows(
    "also in what was put into JSON, a repr, a URL, YAML, a log, numbered lines or a diff, once or twice"
)
def test_a_secret_is_masked_in_whatever_it_is_put_into(name: str) -> None:
    around = secret_cases.SURROUNDINGS[name]
    for case in CASES:
        clean, count = mask(around(case.text))
        assert count >= 1, case
        assert case.secret not in clean, case
        assert clean.count("\n") == around(case.text).count("\n")
        assert mask(clean) == (clean, 0), case


ENCODINGS: dict[str, Callable[[str], str]] = {
    "json": json.dumps,
    "json, as it is": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "url": lambda text: quote(text, safe=""),
    "url, slashes": quote,
    "form": lambda text: quote_plus(f"\n{text}\n"),  # an escape tells its blanks from plus signs
    "json of json": lambda text: json.dumps(json.dumps(text)),
    "repr of json": lambda text: repr(json.dumps(text)),
    "json of repr": lambda text: json.dumps(repr(text)),
    "url of url": lambda text: quote(quote(text, safe=""), safe=""),
    "url of json": lambda text: quote(json.dumps(text), safe=""),
    "json of url": lambda text: json.dumps(quote(text, safe="")),
}


def hidden(text: str) -> Iterator[str]:
    """Give what mask hides of a text and leaves nowhere: runs of letters and digits."""
    clean = mask(text)[0]
    for start, end, _ in secrets._spans(text, secrets._looks(text)):
        yield from (run for run in re.findall(r"[A-Za-z0-9]{6,}", text[start:end]) if run not in clean)


def holds(text: str, encodings: dict[str, Callable[[str], str]]) -> None:
    runs = [*hidden(text)]
    for name, encode in encodings.items() if runs else ():
        clean, shown = mask(encode(text))[0], encode(mask(text)[0])  # an escape's letters may look like a run: %0Apass
        assert [run for run in runs if run in clean and run not in shown] == [], (name, text)


PIECES = st.sampled_from(
    [
        *"\n\t\r\"'\\=:,;{}[]()<>&@/$%+|> ",
        *("\\n", "\\u003d", '\\"', "\\\\", "%3D", "%0A", "%25", "&quot;", "&amp;", ": |\n    ", "swordfish"),
        *("x", "é", "漢", "password", "TOKEN", "api_key: ", "://"),
    ]
) | st.sampled_from([case.text for case in CASES])


@pytest.mark.slow
@given(st.lists(PIECES, max_size=8).map("".join))
@settings(max_examples=300)
@pytest.mark.shows(
    "also in what was put into JSON, a repr, a URL, YAML, a log, numbered lines or a diff, once or twice"
)
def test_what_is_hidden_stays_hidden_when_it_is_encoded(text: str) -> None:
    """Whatever mask hides of a text, it hides of its JSON, its repr, its URL, its form, and of these in one another."""
    holds(text, ENCODINGS)


@each("name", ENCODINGS)
def test_every_case_stays_hidden_when_it_is_encoded(name: str) -> None:
    for case in CASES:
        holds(case.text, {name: ENCODINGS[name]})


def test_every_case_stays_hidden_in_a_form_without_another_escape() -> None:
    for case in CASES:
        holds(case.text, {"form": quote_plus})


ESCAPED = [
    *("\\n", "\\t", "\\r", "\\\\n", '\\"', "\\'", "\\u000a", "\\u0022", "\\x22", "\\x1b[31m", "\\u001b[0m", "\\033[1m"),
]
ESCAPED += [
    *("%0A", "%20", "%22", "%3D", "%3d", "%2520", "&quot;", "&amp;", "&#34;", "\\/", "\\u003d", "\\x3d", "%e6%bc%a2"),
]


@each("escape", ESCAPED)
def test_no_escape_is_part_of_the_word_before_a_token(escape: str) -> None:
    for case in secret_cases.tokens():
        if "=" in case.text[:21] or case.secret == secret_cases.OPTION:
            continue
        clean, count = mask(f"out{escape}{case.text}{escape}and")
        assert count == 1
        assert clean.startswith(f"out{escape}[masked: {case.kind}]") or case.kind == "telegram token", case
        assert clean.endswith("and") or escape in ("%3D", "%3d", "\\/", "\\u003d", "\\x3d"), case


ASSIGNMENTS = ["password{}swordfish9", "DB_PASS{}swordfish9", "api_key{}" + secret_cases.RANDOM]


@each("text", ASSIGNMENTS)
@each("sign", ["=", ": ", '": "', "='", " = "])
def test_no_escape_breaks_an_assignment(text: str, sign: str) -> None:
    whole = text.format(sign) + ("\"'"[sign[-1] == "'"] if sign[-1] in "\"'" else "")
    secret = text.partition("{}")[2]
    every = {
        *(encode(whole) for encode in ENCODINGS.values()),
        "".join(f"\\u{ord(letter):04x}" if not letter.isalnum() and letter != "_" else letter for letter in whole),
        "".join(f"\\x{ord(letter):02x}" if not letter.isalnum() and letter != "_" else letter for letter in whole),
    }
    for written in every:
        assert secret not in mask(written)[0], written


@given(st.text(st.sampled_from("\\\\\\nrtux0349aeé漢%&quot;'\"/ \n"), max_size=60))
def test_a_place_in_a_reading_is_found_in_the_text(text: str) -> None:
    """In order, from the first to the last; a letter that no escape stands for is the same."""
    for reading, place in secrets.readings(text):
        places = [place(at) for at in range(len(reading) + 1)]
        assert (places, places[-1]) == (sorted(places), len(text))
        assert all(text[place(at)] in (letter, "\\", "%", "&", "+") for at, letter in enumerate(reading))


ENCODED: list[Callable[[str], str]] = [
    lambda text: json.dumps(text)[1:-1],
    lambda text: quote(text, safe=""),
    lambda text: html.escape(text).replace("&#x27;", "&#39;"),
]


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=40))
def test_a_text_is_read_back_from_its_encodings(text: str) -> None:
    for encode in ENCODED:
        for again in ENCODED:
            assert text in [reading for reading, _ in secrets.readings(again(encode(text)))]


def test_what_is_far_from_an_escape_is_read_once() -> None:
    """A long text with few escapes costs one reading; its secrets are found in their places all the same."""
    line = "a line of some words\n"
    text = line * 3000 + 'say \\"password\\": \\"' + secret_cases.MIXED + '\\"\n' + line * 3000
    lengths = [len(reading) for reading, _ in secrets.readings(text)]
    assert lengths[0] == len(text)
    assert sum(lengths[1:]) < 10_000
    assert mask(text) == (text.replace(secret_cases.MIXED, "[masked: password]"), 1)


@pytest.mark.shows("private keys, also with numbered lines, without one of their marks, or in base64")
def test_no_line_of_a_private_key_is_left() -> None:
    """Whole, cut at either end, in base64, numbered; the lines around it stay, and their number."""
    for case in secret_cases.private_keys():
        for name in ("plain", "cat -n", "numbered →", "diff +", "log line", "YAML, block"):
            text = secret_cases.SURROUNDINGS[name](f"before it\n{case.text}\nbehind it")
            clean = mask(text)[0]
            lines = [
                line for line in case.text.removeprefix("tls.key: ").split("\n") if re.fullmatch(r"[\w+/=]+", line)
            ]
            assert [line for line in lines if line[:20] in clean] == [], (name, case)
            assert "before it" in clean
            assert "behind it" in clean
            assert clean.count("\n") == text.count("\n")


@pytest.mark.shows(
    "passwords in addresses and in the options of commands",
    "credentials in headers",
    "values assigned to names such as `password`, `DB_PASS` or `api_key`, on the same line or the next",
)
def test_each_value_is_masked_and_its_name_stays() -> None:
    for case in [*secret_cases.assigned(), *secret_cases.tokens()]:
        clean, count = mask(case.text)
        assert count == 1, case
        assert case.text.startswith(clean.partition("[masked: ")[0]), case
