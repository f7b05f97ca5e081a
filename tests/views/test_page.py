"""The page of a report as text: nothing that a run says becomes markup, and its policy holds its own parts alone."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomctl.runs.model import standing
from loomctl.views import page
from loomctl.views.page import Scale
from tests.helpers.reports import HOSTILE
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

FOLDER = CHECKOUT / "loomctl/views/assets"
DAY = "2026-03-02T09:00:00Z"


def a_report(text: str) -> dict[str, Any]:
    """Give a report in which every text, key and time of a run that can be a text is this one."""
    item = {"name": text, "kind": text, "passed": False, "sha256": text, "why": text}
    touched = {"path": text, "change": text, "added": 1, "removed": 2}
    asset = {"path": text, "bytes": 3, "there": False, "at": text, "href": text}
    stage = {
        **dict.fromkeys(("stage", "step_id", "phase", "status", "started_at", "completed_at"), text),
        "anchor": "stage-z", **dict.fromkeys(("reason", "way", "source", "command", "trouble"), text),
        "visit": 2, "rank": 1, "seconds": 61, "attempt": 2, "task": text, "repairs": 1, "branch": None,
        "branches": [{"id": text, "status": text, "reason": text}], "models": [text],
        "tokens": {"in": 5, "out": 6}, "context": [text], "evidence": [item], "files": [touched],
        "files_total": 2, "files_unknown": text, "assets": [asset], "passed_over": [{"path": text, "reason": text}],
        "texts": [{"name": text, "at": text, "bytes": 9, "text": text, "cut": "begin", "href": text}],
        "others": [{"name": text, "at": text, "href": text}],
    }  # fmt: skip
    inner = {**stage, "branches": [], "branch": {"of": text, "stage": text, "id": text}}
    receipt = {"proven": True, "kept": [text], "lost": [text], "restored": [text], "pending": [text], "absent": [text]}
    names = ("session_id", "host", "started_at", "ended_at", "end_reason", "last_activity", "hostname", "platform")
    session = {
        **dict.fromkeys((*names, "git_branch", "git_commit"), text), "dirty": True, "resumes": 1,
        "phases_completed": [text], "artifacts_loaded": [text],
        "compactions": [
            {"at": text, "trigger": text, "receipt": receipt},
            {"at": DAY, "trigger": text, "receipt": None},
        ],
    }  # fmt: skip
    event = {
        **dict.fromkeys(("at", "event", "step_id", "session_id", "said"), text),
        "seq": 1,
        "properties": {text: text},
    }
    priming = {
        "at": text, "session_id": text, "event": text, "used": 5, "limit": 9, "tokens": 2, "guessed": True,
        "restored": [], "tool_history": True, "loaded": {text: text}, "not_loaded": {text: text},
        "fresh": [text],
    }  # fmt: skip
    sums = {"steps": 3, "tokens_before": 30, "tokens_after": 4}
    run_names = ("run_id", "handle", "plan_id", "workflow_id", "status", "work_id", "goal", "created_at", "updated_at")
    artifact = {
        **dict.fromkeys(("id", "type", "description", "form", "at", "event"), text), "required": True,
        "forms": {text: 2}, "bytes": 7, "file": {"below": "project", "at": text, "href": text},
    }  # fmt: skip
    return {
        "schema_version": 1,
        "made_at": text,
        "made_by": text,
        "run": {
            **dict.fromkeys((*run_names, "completed_at", "phase", "step", "waits_for"), text),
            "driver": dict.fromkeys(("session_id", "hostname", "since"), text),
            "forked_from": {"run_id": text, "handle": text, "stage": text, "at": text},
            "saved_from": dict.fromkeys(standing.SAVED_KEYS, text),
        },
        "ledger": {"ok": False, "entries": 3, "unproven": 1, "fault": {"line": 2, "what": text}},
        "progress": {"done": 1, "steps": 2},
        "troubles": [{"code": text, "what": text}],
        "phases": [
            {
                "id": text, "status": text, "started_at": DAY, "completed_at": text,
                "steps": [{"key": f"other {text}", "name": text, "inner": False}],
            }
        ],
        "stages": [stage, inner],
        "sessions": [session],
        "driven": {"turns": 3, "cost": 1.5, "tokens": 9, "calls": 2, "killed": 1, "denied": [text]},
        "turns": [{"at": DAY, "kind": kind, "said": text} for kind in (text, "lease.taken_over")],
        "decisions": [dict.fromkeys(("at", "what", "id", "by", "label", "note"), text)],
        "approvals": [{"id": text, "reason": text, "at": text, "choices": [text]}],
        "errors": [{"where": text, "type": text, "message": text, "mended": mended} for mended in (False, True)],
        "primings": [priming, {**priming, "restored": [text], "guessed": False}],
        "savings": {
            "tools": [{"tool_name": text, **sums}],
            "all": sums,
            "over_time": [[0, 0, 0], [1, 10, 1], [2, 20, 3], [3, 30, 4]],
        },
        "artifacts": [artifact],
        "made": {text: text},
        "made_files": [{"name": text, "path": text, "file": {"below": "run", "at": text, "href": text}}],
        "files": [{**touched, "stages": [text]}],
        "files_total": 2,
        "moments": [1772442000, 1772528400],
        "events": {"total": 3, "broken": 1, "rows": [event]},
        "linked": {"files": 1, "said": text},
    }  # fmt: skip


class Shape(HTMLParser):
    """The elements of a page with the names of their attributes, and the text of its data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.other: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element; where a path may be broken is no matter."""
        if tag != "wbr":
            self.elements.append((tag, *(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        """Note an end."""
        self.elements.append((f"/{tag}",))

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        """Note what a page of ours does not have."""
        self.other.append(data)

    handle_pi = unknown_decl = handle_comment


def page_of(text: str) -> str:
    """Give the page of a report that says one text everywhere."""
    return page.page(a_report(text))


PLAIN = Shape(page_of("z"))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(), max_size=60))
@example("</script><!--")
@example(" ".join(HOSTILE[:8]))
@example(HOSTILE[10])
def test_whatever_a_run_says_the_pages_elements_stay_the_same(text: str) -> None:
    made = page_of(f"z{text}")
    made.encode()
    shape = Shape(made)
    assert (shape.elements, shape.other) == (PLAIN.elements, [])
    assert {one for one in shape.links if not one.startswith("#")} == set()
    block = made.partition('id="event-data">')[2].partition("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(block)
    assert json.loads(block)["rows"][0][0] == 1
    hidden = re.findall("[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u007f-\u009f]", made)
    assert hidden == []


def test_a_run_that_was_taken_over_was_not_taken_back() -> None:
    report = a_report("z")
    over = [one for one in report["turns"] if one["kind"] == "lease.taken_over"]
    shown = page.page({**report, "turns": over})
    assert "Rewound, forked" not in shown
    assert "Taken over by another session" in shown
    back = page.page({**report, "turns": [one for one in report["turns"] if one not in over]})
    assert "Rewound, forked" in back
    assert "Taken over" not in back


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else() -> None:
    made = page_of("z")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', made)
    assert policy is not None
    rules = dict(one.strip().split(" ", 1) for one in html.unescape(policy[1]).split(";"))
    inside = {
        "style-src": re.findall(r"<style>(.*?)</style>", made, re.DOTALL),
        "script-src": re.findall(r"<script>(.*?)</script>", made, re.DOTALL),
    }
    for rule, (only,) in inside.items():
        digest = base64.b64encode(hashlib.sha256(only.encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
        assert "<!--" not in only
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert made.index("Content-Security-Policy") < made.index("<title>")


def test_a_link_leads_beside_the_page_or_nowhere_and_the_templates_hold_no_handler_or_style() -> None:
    for link in ("javascript:x", "//x.example", "https://x.example", "data:text/html,x", "file:///etc", "/etc", "a"):
        assert not page.is_relative(link)
    for link in ("./a%20b/c.md", "../../x/y@1.md", "#events"):
        assert page.is_relative(link)
    text = a_report("z")
    text["stages"][0]["others"] = [{"name": "x", "at": "x", "href": href} for href in ("javascript:x", "./x")]
    assert [one for one in Shape(page.page(text)).links if not one.startswith("#")] == ["./x"]
    for name in (one for one in os.listdir(FOLDER) if one.endswith(".html")):
        for tag in re.findall(r"<[a-z][^<]*?(?<!-)>", (FOLDER / name).read_text(encoding="utf-8")):
            assert not re.search(r"\s(on\w+|style)=", tag), tag
            assert not re.search(r"=\{", tag), tag


STAMPS = [
    ("2026-03-02T09:00:00Z", 1772442000), ("1970-01-01T00:00:00Z", None), ("0001-01-01T00:00:00Z", None),
    ("2026-03-02T09:00:00.123Z", 1772442000), ("2026-03-02 09:00:00", None), ("2026-13-02T09:00:00Z", None),
    ("0000-00-00T00:00:00Z", None), ("", None), (None, None), (5, None),
]  # fmt: skip


@each(("stamp", "seconds"), STAMPS)
def test_a_time_is_read_or_is_none(stamp: object, seconds: int | None) -> None:
    assert page.seconds(stamp) == seconds


@each(
    ("count", "told"),
    [
        (None, ""), (0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (93_784, "1 d 2 h"),
        (86_400 * 400, "400 d"),
    ],
)  # fmt: skip
def test_how_long_something_took_is_told_in_two_units(count: int | None, told: str) -> None:
    assert page.duration(count) == told


@given(st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=60))
def test_the_timelines_scale_keeps_the_order_of_times(moments: list[int]) -> None:
    scale = Scale(moments)
    places = [scale.x(moment) for moment in sorted(moments)]
    assert all(0 <= place <= 100 for place in places)
    assert all(before <= after for before, after in pairwise(places))
    if len(set(moments)) > 1:
        assert places[0] == 0
        assert places[-1] == pytest.approx(100, abs=0.01)


def test_a_night_in_which_nothing_happened_is_drawn_short() -> None:
    day = 86_400
    scale = Scale([0, 1800, 3600, 5400, 7200, day, day + 1800, day + 3600])
    (gap,) = scale.gaps
    assert (gap.begin, gap.end) == (7200, day)
    assert [scale.x(day) - scale.x(7200), scale.x(7200)] == pytest.approx([4, 64])


def became(kept: str = "", lost: str = "", restored: str = "", pending: str = "", absent: str = "") -> dict[str, Any]:
    lists = {"kept": kept, "lost": lost, "restored": restored, "pending": pending, "absent": absent}
    return {"proven": True, **{name: list(items) for name, items in lists.items()}}


RECEIPTS = [
    (None, "", "calm"),
    ({**became(), "proven": False}, "unproven: there is no summary", "warn"),
    (became("a"), "all 1 kept", "good"),
    (became("a", "b", "b"), "1 kept, 1 lost, 1 put back", "good"),
    (became("", "b"), "0 kept, 1 lost, 0 put back, 1 still missing", "bad"),
    (became("", "bc", "", "c"), "0 kept, 2 lost, 0 put back, 1 still to be put back, 1 still missing", "bad"),
    (became("", "b", "", "b"), "0 kept, 1 lost, 0 put back, 1 still to be put back", "warn"),
    (became("a", absent="cd"), "all 1 kept, 2 absent", "good"),
    (became(absent="c"), "1 absent", "calm"),
    (became("", "b", "b", absent="c"), "0 kept, 1 lost, 1 put back, 1 absent", "good"),
]


@each(("receipt", "said", "tone"), RECEIPTS)
def test_what_survived_is_told_by_the_receipt(receipt: Any, said: str, tone: str) -> None:
    assert page.fate(receipt) == (said, tone)
