"""Finding values that are secret because of the name they are given to: `password: …`, `API_KEY=…` (D21)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

_LONG_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_SHORT_PASSWORDS = ("pass", "pw")  # as the last part of a name alone
_PASSWORDS = (*_LONG_PASSWORDS, *_SHORT_PASSWORDS)
# How names begin, and the names that begin so, the longest first.
_STEMS = {
    "pass": ("passphrase", "password", "passwd", "pass"),
    "pw": ("pwd", "pw"),
    "secret": ("secret",),
    "token": ("token",),
    "key": ("key",),
    "bearer": ("bearer",),
    "auth": ("authorization", "auth"),
    "cookie": ("cookie",),
}
_HEADS = ("bearer", "authorization", "auth", "cookie")
_OWN_NAMES = (*_LONG_PASSWORDS, "secret", "token", "api_key", "api-key", "apikey")

# A key is a secret only as one of these; a primary key, a cache key and a public key are not.
_KEYS = ("api", "access", "secret", "private", "account", "auth", "encryption", "signing", "service", "master", "app")

# Between the name and its value, where they stand on one line: what closes the name, perhaps a type, and the sign; or
# the end of an XML tag.
_SIGN = r"""
    (?i:_?base)? \\{0,3}["'`]?\]? [ \t+]{0,20}
    (?: :[ \t]*[A-Za-z_][\w.\[\]| ]{0,30}=[ \t]*(?=[bfru]{0,2}["'`][^\s"'`,;:)\]}]) | (?:=>|:=|!?={1,3}|:)[ \t+]{0,20} )
    | >
"""
# The sign at the end of a line and the value on the next, indented; a line may have a number or a mark of its own.
_NEXT_LINE = r"""
    ["'`]?\]? [ \t]{0,20} [:=] [ \t]{0,20} ([|>][-+0-9]{0,2}|\(|\\)? [ \t]{0,20} (?:\#[^\n]{0,80})? \r?\n
    LINE_BEGINS (?:[+\- \t]|>[ ]){1,40}
"""
# A name and its value as two fields, or as two arguments.
_FIELDS = r"""["'`]?[ ]{0,9},?(?:[ ]{0,9}|\r?\nLINE_BEGINS[+\- \t]{0,40})["'`]?value["'`]?[ \t]{0,9}[:=][ \t]{0,9}"""
_ARGUMENTS = r"""["'][ \t]{0,9},[ \t]{0,9}(?=["'])"""
_CALLED = (
    r"(?i)(?<!\w)(?!\w*error)\w{0,30}(?:define|env|set|put|add|header|property|variable|credential)\w{0,30}"
    r"\(\s{0,20}[\"'][\w.-]{0,40}\Z"
)
_QUOTED = r"""[BFRUbfru]{0,2}(?:(["'`])((?:(?!\1)[^\\\n]|\\.){1,4096})\1|(\\{1,3}["'`])([^"'`\\\n]{1,4096})\3)"""
_BARE = r"""[^\s"'`,;()<>{}\[\]|&\\]{4,4096}"""
_SCHEMES = (
    "(?i:basic|bearer|token|bot|ssws|geniekey|api-?key|key|oauth|negotiate|ntlm|hmac|hawk|digest|signature"
    "|aws4-hmac-sha256)"
)
_PARAMETER = r"""[\w-]{1,40}=(?:\\{0,3}"[^"\\\n]{0,999}\\{0,3}"|[^\s,"'\\]{1,999})"""
_HEADERS = {
    "authorization": rf"""["'`\]]{{0,2}}(?:,?\s{{0,9}}["']?value["']?)?[ \t+]{{0,9}}[:=,][ \t+]{{0,9}}["'`]?(?:
        {_SCHEMES}[ +]{{1,9}}({_PARAMETER}(?:,[ +]{{0,9}}{_PARAMETER}){{1,40}})
        |({_SCHEMES}|[A-Z][\w-]{{2,30}})[ +]{{1,9}}([\w.~+/:-]{{8,4096}}=*)
        |([\w.~+/:-]{{12,4096}}=*))""",
    "bearer": r"[ +]{1,9}([\w.~+/-]{16,4096}=*)",
    "cookie": r"""["'`]{0,2}[ \t]*[:=,][ \t+]*["'`]?([^\s"'`=;]{1,100}=[^\n"'`\\]{8,4096})""",
    "auth": r"""(?:(?<=_auth)[ \t]*=[ \t]*([A-Za-z0-9+/]{12,4096}=*)|"[ \t]*:[ \t]*"([A-Za-z0-9+/]{15,4096}=*)")""",
}

# In a file of settings for a shell a value goes on to the next blank.
_SHELL_VALUE = r"""(?:(?!&&|\|\|)[^\s"'`;<>]){5,4096}"""
_CALL = r"[\w.$]*[(\[{].*[)\]}]"

# What stands before a setting on its line: its number or a log's time, a diff's or a list's mark, what exports it.
_LINE_BEGINS = (
    r"(?:[ \t]{0,9}(?:[\w./-]{1,60}:)?[0-9]{1,6}(?:[ ]?→|[:|]|\t|(?=[ ]{2}))"
    r"|\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T\ ][0-9:.,+Z-]{5,32}\]?[ ]{1,4}(?:\[?[A-Z]{3,8}\]?[ ]{1,4})?"
    r"(?:\[[^\]\n]{1,40}\]:?[ ]{1,4})?)?"
)
_BEFORE_SETTING = (
    rf"{_LINE_BEGINS}(?P<indent>[ \t]{{0,40}})(?P<mark>[+>\"'-]{{0,4}}[ \t]{{0,40}}[\"']?)"
    r"(?:(?:export|set|setx|ENV|env|ARG|declare -x|-e)[ \t]{1,4}['\"]?)?(?://[\w./:@-]{1,80}:)?[\w./-]{0,80}"
)
_NEXT_LINE = _NEXT_LINE.replace("LINE_BEGINS", _LINE_BEGINS)
_FIELDS = _FIELDS.replace("LINE_BEGINS", _LINE_BEGINS)

_SECTION = r"(?:^|[\"'`→+-]|[^\s=(,:][ \t])[ \t]{0,40}\[[\w. :-]{1,80}\]\s*\Z"
_VALUES = 8  # so many settings of a section may end in a bracket of their own
_SETTINGS = r"(?:[^\n=]*=[^\n]*\n|[0-9 \t\r→+-]*(?:[#;][^\n]*)?\n)*"
# In a .netrc: `login bob password …`, or a line each, numbered or in a diff.
_LOGIN = r"(?:\A|\s)login\s{1,9}\S{1,60}\s(?:\s*[0-9]{1,6}[→:|]?)?(?:\s*[+>-])?\s*\Z"
_NEAR = 120  # how much of what stands before a name is looked at
# In a message: a word or a mark before the name, and nothing that begins an argument.
_BEFORE_SAID = r"(?:[^\s,;(\[{=&?\\][ \t]{1,9}|[:\]])[\w.-]{0,40}\Z"
_OPENING = r"(?:\A|[:=(\[{, \t])[bfru]{0,2}[\"'`]{0,3}\Z"  # what stands before a quote that opens a text

_WORDS = r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+"
_SLUG = r"(?:[A-Za-z]+[0-9]{0,2}|[0-9]+)(?:[^A-Za-z0-9\s]+(?:[A-Za-z]+[0-9]{0,2}|[0-9]+))*"
_UNLIKE_CODE = frozenset("!@#%^*~?$")
_EMPTY_WORDS = frozenset(
    {
        *("bool", "boolean", "char", "disabled", "enabled", "false", "hidden", "input", "none", "null", "number"),
        *("optional", "pass", "required", "string", "text", "true", "undefined", "user", "username", "varchar"),
        *("base64", "int32", "int64", "sha256", "sha512", "uint64", "bytes", "object", "unknown", "secretstr"),
        "default",
        # How other languages call it, as their translations have it.
        *("passwort", "kennwort", "wachtwoord", "contrasena", "senha", "heslo", "lozinka", "salasana", "parola"),
        *("adgangskode", "passord", "parole", "slaptazodis", "geslo", "parool", "jelszo", "sifre", "haslo"),
        *("mot-de-passe", "motdepasse", "forgotten", "forgot", "confirm", "never", "prompt", "missing", "invalid"),
        *("empty", "value", "change", "login", "query"),
    }
)
_EMPTY_PARTS = ("your", "xxxx", "placeholder", "redacted", "masked", "...", "…")


def names_in(text: str) -> list[str]:
    """Give the stems of names that stand in a text; whatever a text is put into leaves their letters as they are."""
    low = _lower(text)
    return [stem for stem in _STEMS if stem in low]


def assigned_secrets(text: str, stems: list[str]) -> Iterator[tuple[int, int, str]]:
    """Find where each such value begins and ends, and its kind; in no order, and some perhaps twice.

    stems: of the names that are looked for (names_in).
    """
    low = _lower(text)
    for stem in stems:
        names = _STEMS[stem]
        at = low.find(stem)
        while at >= 0:
            name = next(name for name in names if low.startswith(name, at))
            rest = at + len(name)
            value = None if low[rest : rest + 1].isalpha() else _value(text, low, name, at)
            if value:
                start, rest, secret = value
                if secret:
                    yield start, rest, _kind(name)
                elif text[start - 1] in "\"'`":  # a text in quotes that is about a name
                    rest = start
            at = low.find(stem, rest)


def _lower(text: str) -> str:
    """Give a text with its ASCII letters small: each character stays in its place."""
    return text.encode("latin-1", "replace").lower().decode("latin-1")


def names_a_secret(key: str) -> bool:
    """Tell whether the values of a key of this name need a look."""
    low = key.lower()
    return any(stem in low for stem in _STEMS)


def _kind(name: str) -> str:
    kinds = {"bearer": "token", "authorization": "credentials", "auth": "credentials"}
    return kinds.get(name, "password" if name in _PASSWORDS else name)


def _value(text: str, low: str, name: str, at: int) -> tuple[int, int, bool] | None:
    """Give where the value of the name at this place begins and ends and whether it is a secret, if it has a value.

    What costs least is asked first: a hostile text is made of names.
    """
    after = at + len(name)
    if name in _HEADS:
        return None if _in_mask(text, at) else _header(text, name, after)
    if (
        text[after : after + 24].lstrip(" \t+")[:1].isalnum()
        and "--" not in text[max(0, at - 20) : at]
        and "login" not in text[max(0, at - _NEAR) : at]
    ):
        return None  # a word among others
    since = max(0, at - _NEAR)
    line = text[max(since, text.rfind("\n", since, at) + 1, text.rfind("\r", since, at) + 1) : at]
    sign = _sign(text, low, name, at, line)
    value = _value_behind(text, name, at, after + len(sign), sign, line) if sign else None
    if not value and sign and text.find("\n", after, after + 170) >= 0:
        import re  # most texts have nothing to look at

        next_line = re.compile(_NEXT_LINE, re.VERBOSE).match(text, after)
        if next_line:
            value = _value_behind(text, name, at, next_line.end(), "\n" + (next_line[1] or ""), line)
    return None if value and value[2] and _in_mask(text, at) else value


def _in_mask(text: str, at: int) -> bool:
    """Tell the word in a mask, which assigns nothing."""
    return "[masked: " in text[max(0, at - 40) : at].rpartition("]")[2]


def _setting(line: str) -> re.Match[str] | None:
    """Match what stands before a name on its line if that begins a setting; a text in quotes begins like a line."""
    import re

    setting = re.compile(_BEFORE_SETTING).fullmatch(line)
    if not setting:
        quote = max(map(line.rfind, "\"'`"))
        if quote >= 0 and re.compile(_OPENING).search(line[max(0, quote - 6) : quote]):
            setting = re.compile(_BEFORE_SETTING).fullmatch(line, quote + 1)
    return setting


def _value_behind(text: str, name: str, at: int, start: int, sign: str, line: str) -> tuple[int, int, bool] | None:
    import re

    quoted = re.compile(_QUOTED).match(text, start)
    if quoted:
        group = 2 if quoted[2] is not None else 4
        is_command = quoted[1] == "`" and sign == " "  # a shell runs it, and prose quotes so
        return (*quoted.span(group), not is_command and _is_secret(name, quoted[group], sure=True))
    is_upper = text[at : at + len(name)].isupper()
    if sign == "=" and (is_upper or name in _PASSWORDS):
        shell = re.compile(_SHELL_VALUE).match(text, start)
        if (
            shell
            and _is_secret(name, shell[0], sure=is_upper or not _is_name(shell[0]))
            and not re.compile(_CALL).fullmatch(shell[0])
            and _setting(line)
            and (is_upper or not _is_argument(text, at))
        ):
            return (*shell.span(), True)
    bare = re.compile(_BARE).match(text, start)
    return (*bare.span(), _bare_is_secret(text, name, at, sign, line, bare)) if bare else None


def _header(text: str, name: str, after: int) -> tuple[int, int, bool] | None:
    """Give what stands in a header that holds credentials of any name."""
    import re

    header = re.compile(_HEADERS[name], re.VERBOSE).match(text, after)
    if not header:
        return None
    group = header.lastindex or 1
    value = header[group]
    if name == "cookie":
        value = value.partition("=")[2].partition(";")[0]
        is_secret = looks_random(value) or (len(value) >= 24 and value.isalnum())
    elif name == "bearer":
        is_secret = looks_random(value)
    elif name == "auth":
        is_code = group == 1 and (text[header.end() : header.end() + 1] in ("(", ".") or not _is_encoded(value))
        is_secret = not is_placeholder(value) and _is_mixed(value) and not is_code
    elif group == 1:
        is_secret = any(map(str.isdigit, value)) and "$" not in value
    elif group == 3 and re.compile(_SCHEMES).fullmatch(header[2]):
        is_secret = not is_placeholder(value) and (_is_mixed(value) or value.endswith("="))
    else:
        is_secret = not (is_placeholder(value) or re.compile(_SCHEMES).fullmatch(value)) and (
            looks_random(value) or _is_secret("token", value, sure=False)
        )
    return (*header.span(group), is_secret)


def _sign(text: str, low: str, name: str, at: int, line: str) -> str:
    """Give what stands between the name and its value; "" where the name is none of a secret or has no value.

    line: what stands before the name on its line.
    """
    import re  # most texts have nothing to look at

    after = at + len(name)
    last = line[-1:]
    if name == "key" and not (
        low[max(0, at - 12) : at].rstrip("_- ").endswith(_KEYS)
        or last in ("?", "&")
        or (not last.isalnum() and last not in ("_", ".", "-") and text[at : at + 5] == "Key: ")
    ):
        return ""
    if name in _SHORT_PASSWORDS and last.isalnum() and not (text[at].isupper() and last.islower()):
        return ""
    sign = re.compile(_SIGN, re.VERBOSE).match(text, after)
    if sign:
        return sign[0]
    fields = re.compile(_FIELDS).match(text, after)
    if fields:
        return fields[0]
    arguments = re.compile(_ARGUMENTS).match(text, after)
    if arguments:
        return arguments[0] if re.compile(_CALLED).search(line) else ""
    if "|" in line[-40:]:  # a table in Markdown
        cell = re.compile(r"[`*]{0,2}[ \t]{0,20}\|[ \t]{0,20}[`]?").match(text, after)
        if cell:
            return cell[0]
    if text[after : after + 1] != " ":
        return ""
    is_option = "--" in line[-20:].rpartition(" ")[2]
    is_netrc = name == "password" and re.compile(_LOGIN).search(text[max(0, at - 80) : at])
    return " " if is_option or is_netrc else ""


def _is_name(value: str) -> bool:
    """Tell a name in a program from a value."""
    letters = value.replace("_", "")
    return letters != value and (letters.isalpha() or any(own in value.lower() for own in _OWN_NAMES))


def _is_argument(text: str, at: int) -> bool:
    """Tell whether the line before goes on here, as in a call over several lines."""
    return text[max(0, at - _NEAR) : at].rpartition("\n")[0].rstrip()[-1:] in (",", "(", "{", "[")


def _is_mixed(value: str) -> bool:
    """Tell letters of both kinds, or with digits among them, from a word."""
    return any(map(str.isdigit, value)) or value not in (value.lower(), value.upper(), value.capitalize())


def _is_encoded(value: str) -> bool:
    """Tell base64 by its digits or its end from a name."""
    return value.endswith("=") or any(map(str.isdigit, value))


def _in_section(text: str, at: int) -> bool:
    """Tell whether a place is in a section of an INI file: a `[section]`, and nothing but settings since."""
    import re

    since, line = max(0, at - 800), text.rfind("\n", 0, at) + 1
    close = line
    for _ in range(_VALUES):
        close = text.rfind("]", since, close)
        if close < 0:
            return False
        begin, end = max(since, text.rfind("\n", since, close) + 1), text.find("\n", close)
        if re.compile(_SECTION).search(text[max(begin, end - _NEAR) : end]):
            return bool(re.compile(_SETTINGS).fullmatch(text, end + 1, line))
        if "=" not in text[begin:end]:
            return False
        close = begin
    return False


def _is_code(value: str) -> bool:
    """Tell a name in a program, alone or after a point, from a value."""
    return value.replace("_", "").replace(".", "").isalpha() or ("_" in value and value.replace("_", "").isalnum())


def _bare_is_secret(text: str, name: str, at: int, sign: str, line: str, bare: re.Match[str]) -> bool:
    """Tell a value without quotes that stands for itself, as in a settings file, from a piece of code."""
    import re

    value = bare[0]
    if not _is_secret(name, value, sure=True, least=6):
        return False
    follows = text[bare.end() : bare.end() + 48]
    if sign == ">":
        return follows.startswith("</") and _is_secret(name, value, sure=True)
    if follows.startswith(("(", "[", "{")) or value.startswith(("*", "&", "!")):  # a call; an alias or tag of YAML
        return False
    if value.startswith("$") and (f"{value}{follows[:1]}".endswith("->") or "::" in value):  # a member, in Perl or PHP
        return False
    ends = follows.lstrip(" ")[:1] == "#" or follows[:1] in ("", "\n", "\r", "\\", '"', "'", "`")
    is_upper = text[at : at + len(name)].isupper()
    is_password = name in _PASSWORDS
    if name == "pass" and is_upper and ":" in sign and line[-1:] not in ("_", "-", "."):
        return False  # a test's result
    plain = sign.strip(" \t+\"'\\`")
    # Values that nobody can take for code.
    is_query = sign == "=" and re.compile(r"[?&#;][\w.-]{0,40}\Z").search(line)
    is_header = plain == ":" and (
        line.endswith("-")
        or (text[at].isupper() and not (line[-1:].isalnum() or line[-1:] in ("_", ".")) and _setting(line))
    )
    if (is_query or is_header) and not is_password:
        return _is_secret(name, value, sure=True, least=6) and (bool(is_query) or ends)
    if not is_password and len(value) < 16:
        return False
    setting = _setting(line)
    is_connection = sign == "=" and (follows[:1] == ";" or ";" in line[-12:])
    is_pair = sign == "=" and (
        re.compile(r"[ \t]{1,9}[\w.]{1,40}=[^=\s]").match(follows)
        or re.compile(r"(?:^|[\s\"'])[\w.]{1,40}=[^\s=;,()]{1,64}[ \t]{1,9}[\w.]{0,20}\Z").search(line)
    )
    is_option = "--" in line[-20:].rpartition(" ")[2]
    is_netrc = sign == " " and not is_option and "machine " in text[max(0, at - 160) : at]
    is_block = sign.startswith("\n") and bool(sign[1:].strip("(\\")) and setting
    is_field = "value" in sign.lower()
    is_word = re.compile(r"[a-z]+(?:-[a-z]+)*").fullmatch(value)
    is_yaml = plain == ":" and ends and (sign[-1:].isspace() or not value.isalpha())  # password:focus
    is_env = sign == "=" and is_upper and re.compile(r"(?:^|[\s\"'`])[A-Z0-9_]*\Z").search(line)
    is_yaml_word = (
        is_yaml and is_password and setting and is_word and (name in _LONG_PASSWORDS or line[-1:] in ("_", "-"))
    )
    if is_password and (
        is_query
        or is_connection
        or is_env
        or is_pair
        or is_netrc
        or is_block
        or is_field
        or is_yaml_word
        or (is_option and sign == "=")
        or (plain == "=" and ends and setting and _in_section(text, at))
    ):
        return _is_secret(name, value, sure=True) and not (is_pair and _is_name(value))
    is_next = sign.startswith("\n") and ends and setting and not value.endswith(":")
    is_setting = sign == "=" and (ends or is_upper)
    is_ini = is_password and plain == "=" and ends and setting and not _is_code(value)
    is_marked = is_password and not _UNLIKE_CODE.isdisjoint(value)
    if (
        sign == " "
        or is_option
        or is_yaml
        or is_ini
        or "|" in sign
        or is_setting
        or is_query
        or is_connection
        or is_marked
        or is_next
        or is_pair
        or is_block
        or is_field
        or (is_password and sign == "=" and _is_said(line, value, follows))
    ):
        return _is_secret(name, value, sure=False)
    return len(value) >= 16 and not is_placeholder(value) and looks_random(value)


def _is_said(line: str, value: str, follows: str) -> bool:
    """Tell a password in a message, `Error: password=…`, from a name in a program."""
    import re

    is_value = any(map(str.isdigit, value)) and not _is_code(value)
    return is_value and not follows.startswith(")") and bool(re.compile(_BEFORE_SAID).search(line[-60:]))


def _is_secret(name: str, value: str, *, sure: bool, least: int = 0) -> bool:
    """Tell a secret from the other things that are assigned to such names: words, paths, slugs, references.

    sure: it stood in quotes or where no code stands; least: how long the value of another name than a password's is.
    """
    import re  # most texts have nothing to look at

    is_password = name in _PASSWORDS
    if not is_password and len(value) < (least or (8 if sure else 16)):
        return False
    if is_placeholder(value) or (len(value.split()) > 1 and name != "passphrase"):
        return False
    is_path = value.startswith(("/", "./", "../", "~/", "@/")) or re.compile(r"[A-Za-z]:\\[\w\\]").match(value)
    if is_path and not (len(value) >= 32 and looks_random(value)):
        return False
    if "://" in value:
        return False
    mixed = any(map(str.isdigit, value)) and sum(map(str.isalpha, value)) > 2  # two are in a date: 01T00:00Z
    if not is_password:
        return looks_random(value) or (mixed and not re.compile(_SLUG).fullmatch(value))
    if mixed and sure:
        return len(value) >= 5
    if mixed:
        return len(value) >= 6 and (
            not any(own in value.lower() for own in _OWN_NAMES)  # new_password2
            or not re.compile(_SLUG).fullmatch(value)
            or looks_random(value)
        )
    if sure:
        return len(value) >= 5 and value.isascii() and not (value.isalpha() and value.istitle())
    is_base64 = value.endswith("=") and len(value) % 4 == 0 and _is_mixed(value)
    return len(value) >= 8 and (is_base64 or not _UNLIKE_CODE.isdisjoint(value))


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
