"""Finding values that are secret because of the name they are given to: `password: …`, `API_KEY=…` (D21)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_NAMES = (*_PASSWORDS, "secret", "token", "key", "bearer ", "authorization", 'auth"', "_auth", "cookie")
_OWN_NAMES = (*_PASSWORDS, "secret", "token", "api_key", "api-key", "apikey")

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
_HEADERS = {
    "authorization": r"""["'`\]]{0,2}[ \t]*[:=,][ \t]*["'`]?(?:[Bb]asic|[Tt]oken|[Bb]ot) +([\w.~+/-]{8,4096}=*)""",
    "bearer ": r"([\w.~+/-]{16,4096}=*)",
    "cookie": r"""["'`]{0,2}[ \t]*[:=,][ \t]*["'`]?([^\s"'`=;]{1,100}=[^\n"'`]{8,4096})""",
    "_auth": r"[ \t]*=[ \t]*([A-Za-z0-9+/]{12,4096}=*)",
    'auth"': r"""[ \t]*:[ \t]*"([A-Za-z0-9+/]{15,4096}=*)\"""",
}

# In a file of settings for a shell a value goes on to the next blank.
_SHELL_VALUE = r"""(?:(?!&&|\|\|)[^\s"'`;<>]){5,4096}"""
_CALL = r"[\w.$]*[(\[{].*[)\]}]"

_WORDS = r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+"
_SLUG = r"(?:[A-Za-z]+[0-9]{0,2}|[0-9]+)(?:[^A-Za-z0-9\s]+(?:[A-Za-z]+[0-9]{0,2}|[0-9]+))*"
_UNLIKE_CODE = frozenset("!@#%^*~?$")
_EMPTY_WORDS = frozenset(
    {
        *("bool", "boolean", "char", "disabled", "enabled", "false", "hidden", "input", "none", "null", "number"),
        *("optional", "pass", "required", "string", "text", "true", "undefined", "user", "username", "varchar"),
        *("base64", "int32", "int64", "sha256", "sha512", "uint64"),
    }
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


def names_a_secret(key: str) -> bool:
    """Tell whether the values of a key of this name need a look."""
    low = key.lower()
    return any(name.strip() in low for name in _NAMES) or low == "auth"


def _kind(name: str) -> str:
    kinds = {"bearer ": "token", "authorization": "credentials", 'auth"': "credentials", "_auth": "credentials"}
    return kinds.get(name, "password" if name in _PASSWORDS else name)


def _value(text: str, low: str, name: str, at: int) -> tuple[int, int, bool] | None:
    """Give where the value of the name at this place begins and ends and whether it is a secret, if it has a value."""
    import re  # most texts have nothing to look at

    after = at + len(name)
    if "]" not in low[max(0, at - 40) : at].rpartition("[masked: ")[2] and "[masked: " in low[max(0, at - 40) : at]:
        return None  # the word in a mask assigns nothing
    if name in _HEADERS:
        header = re.compile(_HEADERS[name]).match(text, after)
        if not header:
            return None
        value = header[1].partition("=")[2].partition(";")[0] if name == "cookie" else header[1]
        is_secret = looks_random(value) or (name in ("authorization", "_auth") and not is_placeholder(value))
        return (*header.span(1), is_secret or (name == "cookie" and len(value) >= 24 and value.isalnum()))
    sign = _sign(text, low, name, at)
    quoted = re.compile(_QUOTED).match(text, after + len(sign)) if sign else None
    if quoted:
        group = 2 if quoted[2] is not None else 4
        return (*quoted.span(group), _is_secret(name, quoted[group], literal=True))
    if sign == "=" and text[at:after].isupper() and _begins_line(text, at):
        shell = re.compile(_SHELL_VALUE).match(text, after + 1)
        if shell and not re.compile(_CALL).fullmatch(shell[0]):
            return (*shell.span(), _is_secret(name, shell[0], literal=True))
    bare = re.compile(_BARE).match(text, after + len(sign)) if sign else None
    return (*bare.span(), _bare_is_secret(text, name, at, sign, bare)) if bare else None


def _sign(text: str, low: str, name: str, at: int) -> str:
    """Give what stands between the name and its value; "" where the name is none of a secret or has no value."""
    import re  # most texts have nothing to look at

    after = at + len(name)
    if name == "key" and not low[max(0, at - 12) : at].rstrip("_- ").endswith(_KEYS):
        return ""
    sign = re.compile(_SIGN, re.VERBOSE).match(text, after)
    if sign:
        return sign[0]
    if "|" in text[max(0, at - 40) : at].rpartition("\n")[2]:  # a table in Markdown
        cell = re.compile(r"[`*]{0,2}[ \t]{0,20}\|[ \t]{0,20}[`]?").match(text, after)
        if cell:
            return cell[0]
    is_option = text[after : after + 1] == " " and "--" in low[max(0, at - 20) : at].rpartition(" ")[2]
    is_netrc = name == "password" and text[after : after + 1] == " " and " login " in low[max(0, at - 80) : at]
    return " " if is_option or is_netrc else ""


def _begins_line(text: str, at: int) -> bool:
    """Tell whether a line begins with the name that ends at this place, as in a file of settings for a shell."""
    before = text[max(0, at - 80) : at].rpartition("\n")[2].strip().removeprefix("export ").strip()
    return not before or (before.replace("_", "").isalnum() and before.isupper())


def _begins_setting(text: str, at: int) -> bool:
    """Tell whether nothing but a dotted name stands on the line before the place, as in INI and properties files."""
    before = text[max(0, at - 80) : at].rpartition("\n")[2].strip()
    return all(character.isalnum() or character in "_.-/:" for character in before)


def _is_code(value: str) -> bool:
    """Tell a name in a program, alone or after a point, from a value."""
    return value.replace("_", "").replace(".", "").isalpha() or ("_" in value and value.replace("_", "").isalnum())


def _bare_is_secret(text: str, name: str, at: int, sign: str, bare: re.Match[str]) -> bool:
    """Tell a value without quotes that stands for itself, as in a settings file, from a piece of code."""
    value = bare[0]
    follows = text[bare.end() : bare.end() + 4]
    if sign == ">":
        return follows.startswith("</") and _is_secret(name, value, literal=True)
    if follows.startswith(("(", "[", "{")) or value.startswith(("*", "&", "!")):  # a call; an alias or tag of YAML
        return False
    ends_line = follows.lstrip(" ")[:1] == "#" or follows[:1] in ("", "\n", "\r")
    is_yaml = ends_line and sign.strip(" \t\"'") == ":"
    ends_text = follows[:1] in ("\\", '"', "'", "`")
    is_setting = sign == "=" and (ends_line or ends_text or text[at : at + len(name)].isupper())
    is_ini = name in _PASSWORDS and sign.strip(" \t") == "=" and ends_line and _begins_setting(text, at)
    is_cell = "|" in sign
    is_option = sign == " " or "--" in text[max(0, at - 20) : at].rpartition(" ")[2]
    is_query = sign == "=" and follows[:1] == "&" != follows[1:2]
    is_connection = sign == "=" and follows[:1] in (";", "") and ";" in text[max(0, at - 12) : at]
    is_ini = is_ini and not _is_code(value)
    is_password = name in _PASSWORDS and not _UNLIKE_CODE.isdisjoint(value)
    if is_option or is_yaml or is_ini or is_cell or is_setting or is_query or is_connection or is_password:
        return _is_secret(name, value, literal=False)
    return len(value) >= 16 and not is_placeholder(value) and looks_random(value)


def _is_secret(name: str, value: str, *, literal: bool) -> bool:
    """Tell a secret from the other things that are assigned to such names: words, paths, slugs, references.

    literal: it stood in quotes, so that nobody can take it for code.
    """
    import re  # most texts have nothing to look at

    if is_placeholder(value) or (len(value.split()) > 1 and name != "passphrase"):
        return False
    is_random = looks_random(value)
    if (value.startswith(("/", "./", "../", "~/", "@/")) and not (is_random and len(value) >= 32)) or "://" in value:
        return False
    mixed = any(map(str.isdigit, value)) and sum(map(str.isalpha, value)) > 2  # two are in a date: 01T00:00Z
    is_slug = not is_random and re.compile(_SLUG).fullmatch(value)
    if name not in _PASSWORDS:
        return (mixed or is_random) and len(value) >= (8 if literal else 16) and not is_slug
    is_variable = is_slug and not literal and any(own in value.lower() for own in _OWN_NAMES)  # new_password2
    if mixed:
        return len(value) >= (5 if literal else 6) and not is_variable
    if literal:
        return len(value) >= 5 and value.isascii() and not (value.isalpha() and value.istitle())
    return len(value) >= 8 and not _UNLIKE_CODE.isdisjoint(value)


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
    names_itself = not has_digit and any(name in low for name in _OWN_NAMES)
    return names_itself and (low in _OWN_NAMES or value != low or not value.isalpha())


def looks_random(value: str) -> bool:
    """Tell the output of a random generator from words, dates and versions by how short its runs of one kind are."""
    import re  # most texts have nothing to look at

    if value == value.lower() and re.compile(_SLUG).fullmatch(value):
        return False
    runs = re.compile(_WORDS).findall(value)
    letters = sum(run.isalpha() for run in runs)
    length = sum(map(len, runs))
    if letters == len(runs):
        return length >= 20 and length <= 2.5 * letters
    return letters >= 3 and length >= 12 and length <= 3.5 * len(runs)
