"""Only listed git commands with listed options are read for a workflow (D16)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.workflows.git_commands import git_argv, git_command_problem
from tests.helpers.errors import refusal
from tests.helpers.tables import each

ALLOWED = [
    "git log --oneline -10", "log --oneline -n 10 --graph --all",
    "git log -n5 --format='%h %an: %s' main..HEAD -- src docs",
    'git log --since="2 weeks ago" --author "A B" --grep={work_id}', "git log --stat HEAD~3..HEAD",
    "git log -p -1", "git show --stat HEAD", "git show HEAD:docs/notes.md", "git diff --stat main...HEAD",
    "git diff --cached -U5 -- src/a.py", "git status --short --branch", "git status -sb",
    "git status --porcelain=v2", "git branch --show-current", "git branch -vv --sort=-committerdate",
    "git branch --list 'feat/*'", "git branch --contains HEAD", "git rev-parse --abbrev-ref HEAD",
    "git shortlog -sn", "git shortlog -sne main..HEAD", "git describe --tags --always", "  git   log  \t-3 ",
]  # fmt: skip

REFUSED = [
    "", "git", "push", "git push", "git commit -m x", "git checkout main", "git config user.name", "git fetch",
    "git grep x", "git blame x", "git help log", "git -c core.pager=x log", "git --exec-path=/tmp log",
    "git -C /tmp log", "git --git-dir=/tmp/x log", "git log --output=/tmp/x", "git log --outp=/tmp/x",
    "git log --ext-diff -p", "git log --textconv -p", "git log -O/tmp/order", "git log -c",
    "git log --show-signature", "git log --format=%G?", "git log --pretty='%h %GK'",
    "git branch --format='%(signature)'", "git log --no-walk --stdin", "git log -L 1,5:x.py", "git log -S",
    "git log -n --output=/tmp/x", "git show --submodule=diff", "git diff --no-index /etc/passwd x",
    "git diff /etc/passwd", "git diff ../other/secret x", "git diff -- ../../x", "git diff ~/x",
    "git diff -- :(top)x", "git log -- :!secret", "git log -- :^x", "git show :/fix", "git show C:/x",
    "git show C:\\x", "git diff a\\..\\..\\b", "git log -- {project_root}/src", "git branch new-branch",
    "git branch -v new-branch", "git branch -d old", "git branch -D old", "git branch -m a b",
    "git branch -l old", "git branch --edit-description", "git branch --set-upstream-to=x",
    "git rev-parse --resolve-git-dir /tmp", "git rev-parse -- x", "git status -v", "git log | head",
    "git log; rm -rf /", "git log && x", "git log > /tmp/x", "git log $(x)", "git log `x`",
    "git log --oneline\nrm x", "git log 'open", 'git log ""', "git log \0", "git log -n_", "/usr/bin/git log",
    "GIT_DIR=x git log",
]  # fmt: skip


@each("command", ALLOWED)
def test_reading_is_allowed(command: str) -> None:
    """What shows history, changes and places is allowed, and is called with every program of git's switched off."""
    assert git_command_problem(command) is None
    argv = git_argv(command)
    assert argv[:2] == ["--no-pager", "--no-optional-locks"]
    verb = next(
        word
        for word in argv
        if word in ("log", "show", "diff", "status", "branch", "shortlog", "describe") or word == "rev-parse"
    )
    if verb in ("log", "show", "diff"):
        place = argv.index(verb)
        assert argv[place + 1 : place + 3] == ["--no-ext-diff", "--no-textconv"]


@each("command", REFUSED)
@pytest.mark.shows("a fixed list of subcommands and options, without a shell")
def test_all_else_is_refused(command: str) -> None:
    """Whatever could write, run a program, reach out of the project or need a shell is refused with a reason."""
    reason = git_command_problem(command)
    assert reason
    caught = refusal(git_argv, command)
    assert (caught.code, caught.why) == ("GIT_COMMAND", reason)


def test_words_are_split_as_a_shell_would_and_shortlog_waits_for_nobody() -> None:
    """Without a revision shortlog would read stdin: it gets HEAD."""
    argv = git_argv("git log --format='%h  %s' --grep=\"it's\" -n 3")
    assert argv[-4:] == ["--format=%h  %s", "--grep=it's", "-n", "3"]
    assert git_argv("shortlog -sn")[-2:] == ["HEAD", "-sn"]
    assert git_argv("shortlog -sn main")[-2:] == ["-sn", "main"]


@given(st.text(max_size=60) | st.lists(st.sampled_from([*" ".join(ALLOWED + REFUSED).split(), " "])).map(" ".join))
def test_any_text_has_an_answer(command: str) -> None:
    """A command is refused with a reason or gives an argv without a shell's signs; nothing else happens."""
    reason = git_command_problem(command)
    if reason is None:
        argv = git_argv(command)
        assert not {"--ext-diff", "--textconv", "--no-index", "--exec"} & set(argv)
        assert not any(word.startswith("--output") for word in argv)
    else:
        assert reason.strip()
