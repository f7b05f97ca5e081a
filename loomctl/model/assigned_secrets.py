"""Finding values that are secret because of the name they are given to: `password: …`, `API_KEY=…` (D21)."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_NAMES = (*_PASSWORDS, "secret", "token", "key", "bearer ", "authorization")

# A key is a secret only as one of these; a primary key, a cache key and a public key are not.
_KEYS = ("api", "access", "secret", "private", "account", "auth", "encryption", "signing", "service", "master", "app")

# Between the name and its value: what closes the name, perhaps a type, and the sign; or the end of an XML tag.
_SIGN = r"""
    (?:_?base)? \\{0,3}["'`]?\]? [ \t]{0,20}
    (?: :[ \t]*[A-Za-z_][\w.\[\]| ]{0,30}=[ \t]*(?=[bfru]{0,2}["'`]) | (?:=>|:=|!?={1,3}|:)[ \t]{0,20} )
    | >
"""
_QUOTED = r"""[BFRUbfru]{0,2}(?:(["'`])((?:(?!\1)[^\\\n]|\\.){1,4096})\1|(\\{1,3}["'`])([^"'`\\\n]{1,4096})\3)"""
_BARE = r"""[^\s"'`,;()<>{}\[\]|&\\]{6,4096}"""
_HEADER = r"""["'`\]]{0,2}[ \t]*[:=,][ \t]*["'`]?(?:[Bb]asic|[Tt]oken|[Bb]ot)[ ]+([A-Za-z0-9._~+/-]{8,4096}=*)"""
_BEARER = r"[A-Za-z0-9._~+/-]{16,4096}=*"

_WORDS = r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+"
_SLUG = r"(?:[A-Za-z]+\d{0,2}|\d+)(?:[^A-Za-z0-9\s]+(?:[A-Za-z]+\d{0,2}|\d+))*"
_EMPTY_WORDS = frozenset(
    ("bool", "boolean", "char", "disabled", "enabled", "false", "hidden", "input", "none", "null", "number", "optional")
    + ("pass", "required", "string", "text", "true", "undefined", "user", "username", "varchar")
    + ("base64", "int32", "int64", "sha256", "sha512", "uint64")
)
_EMPTY_PARTS = ("your", "xxxx", "placeholder", "redacted", "masked", "...", "…")


def assigned_secrets(text: str) -> Iterator[tuple[int, int, str]]:
    """Find where each such value begins and ends, and its kind; in no order, and some perhaps twice."""
    low = text.lower()
    if len(low) != len(text):  # the one letter that lower() makes two of
        low = text.replace("\u0130", "I").lower()
    for name in _NAMES:
        at = low.find(name)
        while at >= 0:
            rest = at + len(name)
            value = _value(text, low, name, at)
            if value:
                start, rest, secret = value
                if secret:
                    yield start, rest, _kind(name)
            at = low.find(name, rest)


def _kind(name: str) -> str:
    return {"bearer ": "token", "authorization": "credentials"}.get(name, "password" if name in _PASSWORDS else name)


def _value(text: str, low: str, name: str, at: int) -> tuple[int, int, bool] | None:
    """Give where the value of the name at this place begins and ends and whether it is a secret, if it has a value."""
    after = at + len(name)
    if name == "authorization":
        found = re.compile(_HEADER).match(text, after)
        return (*found.span(1), not is_placeholder(found[1])) if found else None
    if name == "bearer ":
        found = re.compile(_BEARER).match(text, after)
        return (*found.span(), looks_random(found[0])) if found else None
    if name == "key" and not low[max(0, at - 12) : at].rstrip("_- ").endswith(_KEYS):
        return None
    sign = re.compile(_SIGN, re.VERBOSE).match(text, after)
    start = sign.end() if sign else after + 1
    if not sign and not (text[after : after + 1] == " " and "--" in low[max(0, at - 20) : at].split(" ")[-1]):
        return None
    quoted = re.compile(_QUOTED).match(text, start)
    if quoted:
        group = 2 if quoted[2] is not None else 4
        return (*quoted.span(group), _is_secret(name, quoted[group], literal=True))
    bare = re.compile(_BARE).match(text, start)
    if not bare or text[bare.end() : bare.end() + 1] in ("(", "[", "{"):
        return None
    return (*bare.span(), _bare_is_secret(text, name, at, sign[0] if sign else "--", bare))


def _bare_is_secret(text: str, name: str, at: int, sign: str, bare: re.Match[str]) -> bool:
    """Tell a value without quotes that stands for itself, as in a settings file, from a piece of code."""
    follows = text[bare.end() : bare.end() + 2]
    if sign == ">":
        return follows == "</" and _is_secret(name, bare[0], literal=True)
    is_setting = sign == "=" and text[at : at + len(name)].isupper()
    is_yaml = sign.strip(" \t\"'") == ":" and follows[:1] in ("", "\n", "\r")
    if is_setting or is_yaml or sign == "--":
        return _is_secret(name, bare[0], literal=False)
    if name in _PASSWORDS and any(character in bare[0] for character in "!@#%^*~?$"):
        return _is_secret(name, bare[0], literal=False)
    return len(bare[0]) >= 16 and not is_placeholder(bare[0]) and looks_random(bare[0])


def _is_secret(name: str, value: str, *, literal: bool) -> bool:
    """Tell a secret from the other things that are assigned to such names: words, paths, slugs, references.

    literal: it stood in quotes, so that nobody can take it for code.
    """
    if is_placeholder(value) or (len(value.split()) > 1 and name != "passphrase"):
        return False
    is_random = looks_random(value)
    if (value.startswith(("/", "./", "../", "~/", "@/")) and not (is_random and len(value) >= 32)) or "://" in value:
        return False
    mixed = any(map(str.isdigit, value)) and sum(map(str.isalpha, value)) > 2  # two are in a date: 01T00:00Z
    if name not in _PASSWORDS:
        is_slug = not is_random and re.compile(_SLUG).fullmatch(value)
        return (mixed or is_random) and len(value) >= (8 if literal else 16) and not is_slug
    if mixed:
        return len(value) >= (5 if literal else 6)
    if literal:
        return len(value) >= 5 and value.isascii() and not (value.isalpha() and value.istitle())
    return len(value) >= 8 and any(character in value for character in "!@#%^*~?$")


def is_placeholder(value: str) -> bool:
    """Tell a value that stands for a secret (`${TOKEN}`, `<password>`, `***`, `your-key`) from one that is a secret."""
    low = value.lower()
    has_digit = any(map(str.isdigit, value))
    if low.startswith(("<", "{", "[", "(", "${", "$(", "#{", "%(", "%{", "%s", "&", "process.env", "os.environ")):
        return True
    if value.startswith("$") and (not has_digit or value.isupper()) and value[1:].replace("_", "").isalnum():
        return True
    if len(set(value)) <= 2 or low.partition("|")[0] in _EMPTY_WORDS or any(part in low for part in _EMPTY_PARTS):
        return True
    # A value that names itself: newPassword, DB_PASSWORD, user.token.
    names_itself = not has_digit and any(name in low for name in _NAMES)
    return names_itself and (low in _NAMES or value != low or not value.isalpha())


def looks_random(value: str) -> bool:
    """Tell the output of a random generator from words, dates and versions by how short its runs of one kind are."""
    runs = re.compile(_WORDS).findall(value)
    letters = sum(run.isalpha() for run in runs)
    length = sum(map(len, runs))
    if letters == len(runs):
        return length >= 20 and length <= 2.5 * letters
    return letters >= 3 and length >= 12 and length <= 3.5 * len(runs)
