"""Which shell commands the permission hook allows, asks about, or has no opinion on (D29)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.hosts.tool_calls import Verdict, judge
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

ALLOWED = [
    *("loomctl next", "loomctl next --json", "loomctl next --branch api", "loomctl done --branch=api --outcome failed"),
    *("loomctl done --branch api <<'LOOM'\nIt is done.\nLOOM", "loomctl context get coverage --branch api"),
    *("loomctl preamble --branch api", "loomctl next shop-258-run-2026-01-01T00-00-00Z", "  loomctl show \n"),
    *("loomctl show shop-258 001-frame.fetch@1", "loomctl show shop-258 implement@2 --json", "loomctl stages"),
    *("loomctl stages shop-258 --json", "loomctl events"),
    *("loomctl events shop-258 --since 2h --last=5 --event 'stage.*' --event run.completed --json", "loomctl assets"),
    *("loomctl assets shop-258 --json", "loomctl steps", "loomctl steps shop-258 --last 50 --failed --json"),
    *("loomctl steps --tool=Bash --all --agents", "loomctl preamble"),
    *("loomctl show --stages", "loomctl show shop-258 --stages --json", "loomctl show --assets shop-258 --json"),
    *("loomctl debug preamble", "loomctl debug preamble shop-258 --step build/review --fidelity summary:high --json"),
    *("loomctl preamble shop-258 --step build/review --fidelity summary:high --json", "loomctl context get coverage"),
    *("loomctl context get response.build/review shop-258 --json", "loomctl context get 'a key' "),
    *("loomctl context list", "loomctl context list --all shop-258 --json", "loomctl context history"),
    *("loomctl context history coverage shop-258 --all --json", "loomctl done", "loomctl done --outcome failed"),
    "loomctl done --outcome=partially_succeeded --note 'the database is missing'",
    *('loomctl done --note "it works, mostly"', "loomctl done --artifact spec_path=specs/258.md"),
    "loomctl done <<'LOOM'\nwhat was done\nLOOM",
    "loomctl done --artifact spec_path=x.md <<'EOF'\nany `body` $(with) \"all\" of 'it'\n\nloomctl approve\nEOF\n",
    'loomctl done <<"END"\nx\nEND',
]

ASKED = [
    *("loomctl approve", "loomctl approve shop-258", "loomctl reject", "loomctl reject shop-258 --reason no"),
    *("loomctl choose fix", "loomctl choose '[A] Approve' shop-258 --by Ada", "loomctl fork shop-258 --at 003"),
    *("loomctl rewind shop-258 --to 003", "loomctl trust shop-258", "loomctl cancel", "loomctl push --yes"),
    *("loomctl pull shop-258 --take-theirs", "loomctl push", "loomctl next && loomctl approve shop-258"),
    *("loomctl next; loomctl cancel", "cd x && loomctl approve", "/usr/local/bin/loomctl approve"),
    *("loomctl app'ro've shop-258", 'loomctl "approve"', "loomctl appr\\ove", "loomctl ap\\\nprove"),
    *("loom\\\nctl approve", "loomctl runs \\\n rm x", "loomctl done <<'A'\nx\\\nA\nloomctl approve\nA"),
    *("loomctl $VERB", "loomctl appr{o,}ve", "loomctl $(echo approve)", "echo x | loomctl `echo approve`"),
    *("X=1 loomctl trust R", "loomctl done <<'A'\nx\nA\nloomctl approve", "(loomctl approve)", "loomctl state restore"),
    *("loomctl debug state restore", "loomctl --debug debug state restore shop-258"),
    *("loomctl state restore shop-258 --yes", "loomctl --debug state restore --from state.broken-1.json --yes"),
    *("loomctl runs rm x --yes", "loomctl runs archive x --to /tmp/"),
    *(
        "loomctl drive x -- sh -c 'rm x'",
        "cd x && loomctl  'drive' x --allow Bash",
        "/opt/bin/loomctl drive 'new work'",
    ),
    "loomctl next; /opt/loom/bin/loomctl runs 'rm' x --yes --force",
]

NO_OPINION = [
    *("ls -l", "loomctl steps show toolu_01AbC", "loomctl steps show toolu_01AbC shop-258 --reduced"),
    *("loomctl steps --last 50 show toolu_01AbC", "loomctl steps 'show' toolu_01AbC"),
    *("loomctl steps show toolu_01 > spec.md", "loomctl steps show toolu_01 | sh", "loomctl events -f"),
    *("loomctl events --follow --json", "loomctl events shop-258 --since 2h -f", "loomctl events a b"),
    *("loomctl context", "loomctl context get a b c", "loomctl context list a b", "loomctl context set coverage 87"),
    *("loomctl context unset coverage", "loomctl context 'get set' a", "loomctl context get a --from x"),
    *("loomctl context get coverage <<'A'\nx\nA", "loomctl context get coverage > spec.md", "loomctl 'context get' a"),
    *("loomctl get a", "loomctl events --event stage.*", "loomctl stages a b"),
    *("loomctl show shop-258 3 --file changes.patch", "loomctl dump shop-258 /tmp/x", "loomctl diff"),
    *("loomctl show --diff", "loomctl show --why", "loomctl show --stages a b", "loomctl show --stages --diff"),
    *("loomctl show --assets cp shop-258 ./reports", "loomctl show --assets cp ./reports", "loomctl 'show --stages'"),
    *("loomctl show -- --stages", "loomctl show --file --stages", "loomctl steps --stages", "loomctl debug state show"),
    *("loomctl assets cp shop-258 ./reports", "loomctl assets cp ./reports"),
    *("loomctl blob get blob://sha256/2cf24dba5fb0", "loomctl steps --nonsense", "loomctl steps show a b c"),
    *("loomctl steps --last", "", "loomctl", "loomctl run x", "loomctl resume", "loomctl prime-context --force"),
    *("loomctl runs", "loomctl runs restore x", "loomctl state show", "loomctl clean"),
    *("echo 'the drive is full' | loomctl done", "loomctl status | grep drive"),
    *("loomctl run 'restore the backup'", "echo loomctl next", "loomctlx next", "loomctl next > /etc/passwd"),
    *("loomctl next | tee x", "loomctl next; rm -rf /", "loomctl next && rm -rf /", "loomctl next & rm -rf /"),
    *("loomctl next\nrm -rf /", "loomctl next\r rm -rf /", "loomctl\tnext", "loomctl  done <<LOOM\nx\nLOOM"),
    *("loomctl done <<'LOOM'\nx\nLOOM\nrm -rf /", "loomctl done <<'LOOM' ; rm -rf /\nx\nLOOM"),
    *("loomctl done <<'LOOM' <<'MORE'\nx\nLOOM\ny\nMORE", "loomctl done <<'LOOM'\nLOOM\nrm -rf /\nLOOM"),
    *("loomctl done <<-'LOOM'\nx\nLOOM", "loomctl done <<''\nx\n", "loomctl done --response-file /etc/passwd"),
    *("loomctl done --outcome nonsense", "loomctl done --artifact nonsense", "loomctl done --note 'unclosed"),
    *("loomctl next ~root", "loomctl next <<'LOOM'\nx\nLOOM", "loomctl next a b", "loomctl --debug next"),
    *("./loomctl next", "PATH=. loomctl next", "sudo loomctl next", "grep -rn loomctl src", "loomctl next #comment"),
    *("loomctl next !!", "loomctl next \\\n rm", 'loomctl done --note "a\\"; rm -rf /"', "loomctl next \u00a0rm"),
]


@each("command", ALLOWED)
@pytest.mark.shows("allows one simple")
def test_a_simple_progress_command_is_allowed(command: str) -> None:
    assert (judge(command) or [None])[0] == "allow"


@each("command", ASKED)
@pytest.mark.shows("are put to you")
def test_what_may_run_a_users_decision_is_asked(command: str) -> None:
    """Approval, trust, cancel, push and pull are never given by the assistant alone, however they are dressed up."""
    assert (judge(command) or [None])[0] == "ask"


def test_all_that_is_asked_about_is_named() -> None:
    """Its words are what the user sees; where none is read as a verb, nothing is asked about."""
    verdict = judge("loomctl approve && loomctl runs 'rm' x --by=Ada")
    words = frozenset({"loomctl", "approve", "runs", "rm", "x", "--by", "Ada"})
    assert verdict == Verdict("ask", "only the user decides about loomctl approve", words)
    hidden = judge("loomctl $VERB")
    assert hidden is not None
    assert hidden.words == frozenset()


@each("unit", ["loomctl ", "loomctl x; ", "'loomctl'\n", "x", "x\\\n"])
@each("begin", ["", "loomctl next ", "loomctl done <<'X'\n", "/loomctl "])
def test_a_long_command_is_judged_in_one_go(begin: str, unit: str) -> None:
    with bounded_work():
        verdict = judge(begin + unit * 500_000)
    assert verdict is None or verdict.decision == "ask"


@each("command", NO_OPINION)
@pytest.mark.shows("On every other command the hook has no say")
def test_anything_else_is_left_to_the_host(command: str) -> None:
    """What is not certainly harmless gets no answer, so the host asks as it always does."""
    verdict = judge(command)
    assert verdict is None or verdict[0] == "ask"


@given(
    st.text(alphabet=" ;&|<>()`$\\\n'\"{}*?abc=/.-", max_size=12),
    st.sampled_from(["loomctl next", "loomctl done", "loomctl show", "loomctl steps", "loomctl events"]),
)
@pytest.mark.shows("no other command beside it, no expansion")
def test_an_ending_with_a_shell_character_is_never_allowed(ending: str, command: str) -> None:
    """Whatever is appended to an allowed command, it stays allowed only while every word of it is plain."""
    verdict = judge(command + ending)
    if verdict is not None and verdict[0] == "allow":
        outside = ending.partition("\n")[0].partition("<<")[0]  # a quoted heredoc may end the command
        plain = "".join(part for index, part in enumerate(outside.replace('"', "'").split("'")) if index % 2 == 0)
        assert not set(plain) & set(";&|<>()`$\\{}*?")
