"""How bad the words of a line are, whatever tool printed them (D49).

Words are looked up in a table: as patterns they would take a hook longer to compile than to find.
"""

from __future__ import annotations

import re

# The kinds of lines, the worst first.
ERROR, WARNING, NOTE, WEAK, PLAIN, NOISE = range(6)

_LEVELS = dict.fromkeys(("error", "fatal", "panic", "failure", "critical", "severe", "emerg", "alert", "err"), ERROR)
_LEVELS |= dict.fromkeys(("warning", "warn"), WARNING)
_LEVELS |= dict.fromkeys(
    (
        "note", "info", "information", "hint", "help", "style", "notice", "debug", "trace", "remark", "suggestion",
        "convention", "refactor", "verbose",
    ),
    NOTE,
)  # fmt: skip
# The lists of words, of which a later one counts.
_LISTS = {
    WEAK: """
        asserts assertion assertions assert forbidden unauthorized lost broken bad must would unknown unsupported
        incompatible timeout skipped pending blocked violates violated violation require requires required unable
        nothing not waiting retry retrying already doesn't don't isn't aren't wasn't weren't hasn't haven't hadn't
        didn't won't
    """,
    WARNING: "warn warning warns warnings deprecated deprecation unused unreachable degraded",
    ERROR: """
        error errors err fatal panic panicked traceback exception uncaught fail fails failed failure failures failing
        denied refused rejected abort aborted aborting segmentation crash crashed killed overflow corrupt corrupted
        cannot can't couldn't undefined unresolved expected unexpected mismatch mismatched conflict unhealthy evicted
        oomkilled invalid illegal missing
    """,
}
_WORDS = {word: kind for kind, words in _LISTS.items() for word in words.split()}
_STANDING_ALONE = dict.fromkeys(("skipped", "pending", "todo", "blocked"), WARNING)  # and no part of a file's name
_ENDS = {"Error": ERROR, "Exception": ERROR, "Fault": ERROR, "_error": ERROR, "BackOff": ERROR, "Warning": WARNING}
_PHRASES = (
    (ERROR, ("could not ", "unable to ", "no such ", "not found", "timed out", "exit code", "exit status")),
    (ERROR, ("exited with", "exit with", "exited (1")),
    (WARNING, ("never used", "never read", "never reassigned")),
)
_SIGNS, _FIRST_SIGNS, _GOOD_SIGNS = "✗✕✖❌❎\u2a2f⛔💥", "\u00d7✘●", "✓✔√✅"
_WORD = re.compile(r"\w+(?:'\w+)?")
_NUMBERED_CODE = re.compile(r"(?:\S+:\d+:? +)?[A-Z]{1,5}\d{2,5}\b")
_HTTP = re.compile(r"\bHTTP/[\d.]{1,4} [45]\d\d\b")

# A level with the sign behind it by which a message begins: `error:`, `warning[W12]:`, `(info):`, `ERROR  `.
_LEVEL = re.compile(
    r"(?<![^\s:\[<|#(-])(?<!\w\()(?P<word>[A-Za-z]{3,11})"
    r"(?:\[[\w:./-]+\]|\s?\([\w:, ./-]{1,40}\)|\s(?=[A-Z]+\d+\b))?(?:\s?[:)\]>]|\s{2,}|\t| - |\s(?=[A-Z]+\d+:))"
)
# A log's own word for how bad a line is.
_LEVEL_OF_LOG = re.compile(
    r"\b(?:level|severity|lvl)[\"']?\s?[:=]\s?[\"']?(?P<key>[A-Za-z]+)"
    r"|(?:^|\d\S* |\] )\W?(?P<word>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b(?![:)\w])"
)
# A marker that another stream's line stands directly before: `reading 'x'*** No rule`, `81%ERROR: no room`.
_GLUED = re.compile(
    r"(?<=[\w'\")\].%])(?:: )?\*\*\* (?=[A-Z\[])"
    r"|(?<=[\d'\")\]%])(?:error|Error|ERROR|fatal|FATAL|panic)(?:: |\[)|(?<=[^\s\"'(])Traceback \(most recent"
)
# A line of a program, which names trouble and is none. A pair of JSON, an error with its message, and a list's or a
# build's mark (`* `, `#8 `) at the line's begin are not of that kind.
_CODE = re.compile(
    r"(?!\*{1,3} |\s*\"[^\"]{1,60}\": |\[?(?:[A-Z]\w*)?(?:Error|Exception)\b[^=(){]{0,40}: )"
    r"(?:(?:\d+[:|-]\s*)?(?:(?:def|class|return|raise|if|elif|else|for|while|import|from|try|except|with|assert|const"
    r"|let|var|func|fn|type|export|package|use|pub|public|private|self)\b(?!:)|[@*}\])]|\#(?!\d+ )|//|/\*|\"\"\")"
    r"|.*[{;(,]\s*$)"
)
# What says that there is none, and what only is called so: options and paths.
_GOOD = re.compile(
    r"\b(?:0|[Nn]o|without|zero) (?:[a-z]+ )?(?:errors?|failures?|failed|warnings?|problems?|issues?|vulnerabilities)\b"
    r"|(?<!\S)--?[a-z][\w-]*|(?<!\S)(?:[a-z0-9.@~_-][\w.@~-]*)?/\S*"
    r"|\b\w{0,40}(?i:error|fail|warn|unreachable|skipped|exception|invalid|missing)\w{0,40}[\"']?\s?[:=]\s?"
    r"(?i:null|none|nil|false|0|\"\"|''|\[\]|\{\})(?![\w.\"'])"
)
# What passed, though its name may have a word of trouble in it.
_PASSED = re.compile(
    r"(?:ok\b|(?:PASS|PASSED|OK)\b(?! ?\()|\[\s*(?:ok|OK|PASS|PASSED|success|SUCCESS)\s*\]|--- PASS)"
    r"|.*(?:\s|\.{3})(?:PASSED|ok|OK)(?:\s+\[\s*\d+%\]|\s\([\d.]+ ?m?s\))?\Z"
)
# A line that says no more than that there is trouble, or nothing at all.
_BARE_WORD = re.compile(r"[\W_]*(?:npm )?(?:errors?|failures?|failed (?:examples|tests)|fail)?[\W_]*\Z", re.IGNORECASE)
_ADDRESS = ("http://", "https://")


def kind_of_words(seen: str, *, says: bool) -> tuple[int, int]:
    """Give a line's kind, and where in it the trouble is. says: it is a place with a message, of what failed."""
    if not any(map(str.isalnum, seen)) or _BARE_WORD.match(seen[:80]):
        return NOISE, 0
    if seen[0] in _GOOD_SIGNS or seen[-1] in _GOOD_SIGNS or _PASSED.match(seen):
        return PLAIN, 0
    if seen.startswith(_ADDRESS):
        return NOTE if " " in seen else NOISE, 0
    glued = _GLUED.search(seen)
    if glued:
        return ERROR, glued.start()
    for found in _LEVEL.finditer(seen[:240]):
        level = _LEVELS.get(found["word"].lower())
        if level is not None:
            return level, found.start()
    if _CODE.match(seen):
        return PLAIN, 0
    good = _GOOD.sub(lambda found: " " * len(found.group()), seen)
    kind, at = _worst(good)
    level = _level_of_log(seen[:240])
    if level is not None:
        return (WEAK if kind == ERROR else PLAIN) if level == NOTE else level, at
    return (ERROR, 0) if says and kind > WARNING else (kind, at)


def tells_trouble(text: str) -> bool:
    """Tell a text with any word of trouble in it."""
    return _worst(text)[0] <= WEAK


def _level_of_log(text: str) -> int | None:
    found = _LEVEL_OF_LOG.search(text)
    return _LEVELS.get((found["key"] or found["word"]).lower()) if found else None


def _worst(text: str) -> tuple[int, int]:
    """Give the kind of the worst word, sign or phrase of a text, and its place."""
    best, at = (ERROR, 0) if _has_sign(text) or _HTTP.search(text) else (PLAIN, 0)
    if best > WARNING and _NUMBERED_CODE.match(text):
        best = WARNING
    for found in _WORD.finditer(text):
        if best == ERROR:
            break
        kind = _kind_of(found.group(), text[found.start() - 1 : found.start()] + text[found.end() : found.end() + 1])
        if kind < best:
            best, at = kind, found.start()
    low = text.lower()
    for kind, phrases in _PHRASES:
        places = [place for place in map(low.find, phrases) if place >= 0] if kind < best else []
        if places:
            best, at = kind, min(places)
    if best > WEAK and " found" in low and (low.startswith("no ") or " no " in low):
        best = WEAK
    return best, at


def _kind_of(word: str, beside: str) -> int:
    low = word.lower()
    alone = _STANDING_ALONE.get(low)
    if alone is not None and not any(sign in beside for sign in "./-"):
        return alone
    kind = _WORDS.get(low)
    if kind is not None:
        return kind
    if low.startswith("vulnerab"):
        return WARNING
    return next((kind for end, kind in _ENDS.items() if word.endswith(end) and len(word) > len(end)), PLAIN)


def _has_sign(text: str) -> bool:
    bare = text.lstrip()
    if (bare[:1] in _FIRST_SIGNS and bare) or bare.startswith(("not ok", "** (", "E  ")):
        return True
    return not text.isascii() and (
        any(sign in text for sign in _SIGNS) or any(f" {sign} " in text for sign in _FIRST_SIGNS)
    )
