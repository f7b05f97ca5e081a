"""Masking keys, tokens and passwords in text that is about to be put into a conversation (D21)."""

from __future__ import annotations

from itertools import compress

from loomctl.model import quick_json
from loomctl.model.assigned_secrets import assigned_secrets, is_placeholder, looks_random, names_a_secret
from loomctl.model.fences import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from typing import Any

    Span = tuple[int, int, str]  # where a secret begins, where it ends, its kind

_SHORTEST_TOKEN = 20

# Tokens that say what they are: their kind, how they begin, and the pattern of what follows. A pattern either fails
# within its minimal length or takes all that it has looked at, so that no character is looked at again and again.
_TOKENS = (
    ("aws access key", ("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("github token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{30,}"),
    ("github token", ("github_pat_",), r"[A-Za-z0-9_]{30,}"),
    (
        "gitlab token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glagent-", "gloas-", "glsoat-", "glft-", "glimt-"),
        r"[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+)*",
    ),
    (
        "slack token",
        ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.xoxb-", "xoxe.xoxp-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
        r"[A-Za-z0-9%_-]{16,}",
    ),
    ("slack token", ("xapp-",), r"[0-9][A-Za-z0-9-]{16,}"),
    ("webhook", ("hooks.slack.com/services/", "hooks.slack.com/workflows/"), r"[A-Za-z0-9_/-]{20,}"),
    ("webhook", ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/"), r"[A-Za-z0-9_/-]{20,}"),
    ("stripe key", ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[A-Za-z0-9]{16,}"),
    ("stripe key", ("whsec_",), r"[A-Za-z0-9+/]{24,}=*"),
    ("anthropic key", ("sk-ant-",), r"[A-Za-z0-9_-]{20,}"),
    ("openai key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), r"[A-Za-z0-9_-]{20,}"),
    ("api key", ("sk-",), r"[A-Za-z0-9_-]{20,}"),  # OpenAI's older keys, OpenRouter, DeepSeek and more: _told_apart
    ("google api key", ("AIza",), r"[A-Za-z0-9_-]{30,}"),
    ("google client secret", ("GOCSPX-",), r"[A-Za-z0-9_-]{20,}"),
    ("google token", ("ya29.",), r"[A-Za-z0-9_-]{20,}"),
    ("npm token", ("npm_",), r"[A-Za-z0-9]{30,}"),
    ("pypi token", ("pypi-AgE",), r"[A-Za-z0-9_-]{40,}"),
    ("hugging face token", ("hf_",), r"[A-Za-z0-9]{30,}"),
    ("sendgrid key", ("SG.",), r"[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{30,}"),
    ("digitalocean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{40,}"),
    ("databricks token", ("dapi",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{30,}"),
    ("docker token", ("dckr_pat_", "dckr_oat_"), r"[A-Za-z0-9_-]{20,}"),
    ("atlassian token", ("ATATT3", "ATCTT3"), r"[A-Za-z0-9_=-]{40,}"),
    ("linear key", ("lin_api_",), r"[A-Za-z0-9]{30,}"),
    ("notion token", ("ntn_",), r"[A-Za-z0-9]{40,}"),
    ("vault token", ("hvs.", "hvb."), r"[A-Za-z0-9_-]{20,}"),
    ("groq key", ("gsk_",), r"[A-Za-z0-9]{40,}"),
    ("xai key", ("xai-",), r"[A-Za-z0-9]{40,}"),
    ("tailscale key", ("tskey-",), r"[A-Za-z0-9-]{20,}"),
    ("grafana token", ("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{30,}"),
    ("rubygems key", ("rubygems_",), r"[0-9a-f]{40,}"),
    ("postman key", ("PMAK-",), r"[0-9a-f-]{40,}"),
    ("twilio key", ("SK", "AC"), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("azure signature", ("sig=",), r"[A-Za-z0-9%+/_-]{40,}=*"),
    ("mailgun key", ("key-",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("square token", ("sq0atp-", "sq0csp-"), r"[A-Za-z0-9_-]{22,}"),
    ("heroku key", ("HRKU-",), r"[A-Za-z0-9_-]{30,}"),
    ("new relic key", ("NRAK-",), r"[A-Z0-9]{27,}"),
    ("sentry token", ("sntrys_", "sntryu_"), r"[A-Za-z0-9+/=_-]{40,}"),
    ("supabase token", ("sbp_",), r"[0-9a-f]{40,}"),
    ("planetscale token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[A-Za-z0-9_.-]{30,}"),
    ("doppler token", ("dp.pt.", "dp.ct."), r"[A-Za-z0-9]{40,}"),
    ("fly token", ("fm2_", "fm1r_", "fm1a_", "fo1_"), r"[A-Za-z0-9+/=_-]{40,}"),
    ("figma token", ("figd_",), r"[A-Za-z0-9_-]{36,}"),
    ("perplexity key", ("pplx-",), r"[A-Za-z0-9]{40,}"),
    ("replicate token", ("r8_",), r"[A-Za-z0-9]{37,}"),
    ("langsmith key", ("lsv2_pt_", "lsv2_sk_"), r"[0-9a-f]{32}_[0-9a-f]{10}"),
    ("netlify token", ("nfp_",), r"[A-Za-z0-9]{36,}"),
    ("pulumi token", ("pul-",), r"[0-9a-f]{40}(?![A-Za-z0-9])"),
    ("age key", ("AGE-SECRET-KEY-1",), r"[A-Z0-9]{50,}"),
    # Two or more dots make a JSON Web Token of what else is some JSON in base64: _told_apart.
    ("json web token", ("eyJ",), r"[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,2})?"),
)

# Tokens with a sign of their own in their middle: what stands before it, the sign, and what follows.
_AROUND_A_SIGN = (
    ("telegram token", r"(?<![A-Za-z0-9])[0-9]{6,12}\Z", ":AA", r"[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("azure secret", r"(?<![A-Za-z0-9])[A-Za-z0-9_~.-]{3}[0-9]\Z", "Q~", r"[A-Za-z0-9_~.-]{31,34}"),
    ("terraform token", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\Z", ".atlasv1.", r"[A-Za-z0-9_=-]{60,}"),
    ("mailchimp key", r"(?<![A-Za-z0-9])[0-9a-f]{32}\Z", "-us", r"[0-9]{1,2}(?![A-Za-z0-9])"),
)
_DISCORD = r"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.([A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_-])"

_KEY_BEGINS, _KEY_ENDS = "-----BEGIN ", "PRIVATE KEY"
_BASE64_RUN = r"[A-Za-z0-9+/=]{20,}"
_BASE64_LINES = r"(?:[A-Za-z0-9+/=]{16,}(?:\s|\\[nr])*)+"
# Commands that are given a password among their options: their names, the option with what may stand before the value.
_COMMANDS = (
    ("curl ", r"(?:-u|--(?:proxy-)?user)[ =]?[\"']?[^\s:\"']{0,256}:"),
    ("sshpass ", r"(?<=sshpass )-p[ ]?[\"']?"),
    ("mysql ", r"-p[\"']?(?=\S*[0-9])"),
    ("mysqldump ", r"-p[\"']?(?=\S*[0-9])"),
)
# A line of PostgreSQL's password file: host, port, database, user, password.
_PGPASS = r"[^\s:]+:(?:[0-9]{2,5}|\*):[^\s:]+:[^\s:]+:([^\s:]{4,256})[ \t\r]*$"
_USERINFO = r"([^\s/?#@:\"'<>`\\]*)(?::(?!\d{1,5}[?#,])([^\s/\"'<>`\\]+))?@"


# A terminal's sequence for colours and the like, as it is and as it is made visible.
_COLOUR = r"[\x1b␛]\[[0-9;:?]{0,40}[A-Za-z]"


def masked_line(text: str, limit: int) -> str:
    """Give a text on one line of at most `limit` UTF-16 units, its secrets masked before anything is cut."""
    return one_line(mask(text)[0], limit)


def masked(value: Any) -> Any:
    """Give a copy of a JSON value with the secrets in its texts and keys masked; it stays the same kind of value.

    A text is looked at by itself and as the value of its key, for that may say what it is. Without recursion.
    """
    whole: list[Any] = [value]
    waiting: list[tuple[Any, Any, str]] = [(whole, 0, "")]  # where a value stands that is not masked yet, and its key
    while waiting:
        place, at, key = waiting.pop()
        item = place[at]
        if isinstance(item, str):
            place[at] = _masked_text(key, item)
        elif isinstance(item, dict):
            copy: dict[str, Any] = {}
            for name, child in item.items():
                shown = mask(name)[0]
                while shown in copy:
                    shown += "'"
                copy[shown] = child
                waiting.append((copy, shown, name))
            place[at] = copy
        elif isinstance(item, (list, tuple)):
            place[at] = list(item)
            waiting += [(place[at], index, key) for index in range(len(item))]
    return whole[0]


def _masked_text(key: str, text: str) -> str:
    clean, count = mask(text)
    if count or not names_a_secret(key):
        return clean
    quoted = f'"{key}": {quick_json.plain(text)}'
    kind = next((found[2] for found in assigned_secrets(quoted) if found[0] > len(key) + 3), None)
    return text if kind is None else f"[masked: {kind}]"


def mask(text: str) -> tuple[str, int]:
    """Give the text with each secret as `[masked: kind]`, and how many there were.

    Known are the tokens of the usual services, private keys, passwords in addresses, and values that are assigned
    to a name such as `password` or `api_key`. Hashes, UUIDs and base64 of anything else stay. The number of lines
    stays as it was. Takes time that grows with the length of the text and no faster.
    """
    spans: list[Span] = []
    bare = text
    if "\x1b" in text or "␛" in text:  # a colour's last letter is no part of the word behind it
        import re

        bare = re.sub(_COLOUR, lambda found: " " * len(found.group()), text)
    words = _long_words(bare)
    if words:
        spans += _tokens(bare, words)
        spans += _tokens_around_a_sign(bare, words)
    for find in (_private_keys, _passwords_in_addresses, _passwords_of_commands, _password_files, assigned_secrets):
        spans += find(bare)
    if not spans:
        return text, 0
    parts: list[str] = []
    rest = 0
    count = 0
    for start, end, kind in _apart(spans):
        parts += text[rest:start], f"[masked: {kind}]", "\n" * text.count("\n", start, end)
        rest = end
        count += 1
    return "".join(parts) + text[rest:], count


def _apart(spans: list[Span]) -> Iterator[Span]:
    """Give the spans in their order, those that overlap as one; of two that begin together the first found names it."""
    spans.sort(key=lambda span: span[0])
    start, end, kind = spans[0]
    for next_start, next_end, next_kind in spans[1:]:
        if next_start < end:
            end = max(end, next_end)
        else:
            yield start, end, kind
            start, end, kind = next_start, next_end, next_kind
    yield start, end, kind


def _long_words(text: str) -> str:
    """Give the words, one a line, that are long enough for a token: dozens of signs are looked for, here first."""
    words = text.split()
    return "\n".join(compress(words, map((_SHORTEST_TOKEN - 1).__lt__, map(len, words))))


def _tokens(text: str, words: str) -> Iterator[Span]:
    for kind, prefixes, body in _TOKENS:
        for prefix in prefixes:
            if prefix in words:
                import re  # most texts have nothing to look at

                pattern = re.compile(body)
                at = text.find(prefix)
                while at >= 0:
                    found = None
                    if not at or not (text[at - 1].isascii() and text[at - 1].isalnum()):
                        found = pattern.match(text, at + len(prefix))
                    if found and _told_apart(prefix, found):
                        yield at, found.end(), kind
                    at = text.find(prefix, found.end() if found else at + len(prefix))


def _tokens_around_a_sign(text: str, words: str) -> Iterator[Span]:
    signs = [one for one in _AROUND_A_SIGN if one[2] in words]
    if not signs and words.count(".") < 2:
        return
    import re  # most texts have nothing to look at

    for kind, before, sign, body in signs:
        at = text.find(sign)
        while at >= 0:
            begins = re.compile(before).search(text[max(0, at - 36) : at])
            ends = re.compile(body).match(text, at + len(sign)) if begins else None
            if begins and ends:
                yield at - len(begins[0]), ends.end(), kind
            at = text.find(sign, at + len(sign))
    if words.count(".") > 1:
        for found in re.compile(_DISCORD).finditer(text):
            if looks_random(found[1]):
                yield *found.span(), "discord token"


def _told_apart(prefix: str, found: re.Match[str]) -> bool:
    """Tell the tokens whose beginning alone proves little from a class name in CSS and from JSON in base64."""
    if prefix == "eyJ":
        return found[1] is not None
    if prefix == "sk-":
        return looks_random(found[0]) or max(map(len, found[0].replace("_", "-").split("-"))) >= _SHORTEST_TOKEN
    return True


def _private_keys(text: str) -> Iterator[Span]:
    """Find what stands between the two marks of a private key, or after the first where the second was cut off."""
    at = text.find(_KEY_BEGINS)
    if at < 0:
        return
    import re  # most texts have nothing to look at

    while at >= 0:
        start = text.find("-----", at + len(_KEY_BEGINS))
        if start < 0:
            return
        if _KEY_ENDS not in text[at : min(start, at + 60)]:
            at = text.find(_KEY_BEGINS, start)
            continue
        start += len("-----")
        end = text.find("-----", start)
        run = re.compile(_BASE64_RUN).search(text, start, end if end >= 0 else start + 1000)
        if run and end < 0:
            lines = re.compile(_BASE64_LINES).match(text, run.start())
            end = lines.end() if lines else run.end()
        if run:
            inside = text[start:end]
            yield end - len(inside.lstrip()), start + len(inside.rstrip()), "private key"
        at = text.find(_KEY_BEGINS, max(start, end))


def _passwords_in_addresses(text: str) -> Iterator[Span]:
    at = text.find(":/")
    if at < 0 or "@" not in text:
        return
    import re  # most texts have nothing to look at

    pattern = re.compile(_USERINFO)
    while at >= 0:
        slashes = 3 if text.startswith("://", at) else 2
        # One slash is left of two where an address was taken for a path; a drive's letter is no scheme.
        found = pattern.match(text, at + slashes) if slashes == 3 or text[max(0, at - 3) : at].isalpha() else None
        if found and found[2] and not is_placeholder(found[2]):
            yield *found.span(2), "password"
        elif found and not found[2] and len(found[1]) >= _SHORTEST_TOKEN and looks_random(found[1]):
            yield *found.span(1), "token"
        at = text.find(":/", at + slashes)


def _passwords_of_commands(text: str) -> Iterator[Span]:
    for name, option in _COMMANDS:
        at = text.find(name)
        while at >= 0:
            import re  # most texts have nothing to look at

            end = text.find("\n", at)
            end = min(len(text) if end < 0 else end, at + 4096)
            for found in re.compile(r"(?<=[ \t])" + option + r"""([^\s"'`]{4,256})""").finditer(
                text, at + len(name) - 1, end
            ):
                if not is_placeholder(found[1]):
                    yield *found.span(1), "password"
            at = text.find(name, end)


def _password_files(text: str) -> Iterator[Span]:
    for sign in (":5432:", ":*:", ":6432:", ":5433:"):
        at = text.find(sign)
        while at >= 0:
            import re  # most texts have nothing to look at

            start = text.rfind("\n", 0, at) + 1
            line = re.compile(_PGPASS, re.MULTILINE).match(text, start) if at - start < 256 else None
            if line and not is_placeholder(line[1]):
                yield *line.span(1), "password"
            at = text.find(sign, at + len(sign))
