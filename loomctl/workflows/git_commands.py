"""Which git commands a workflow may have read for it, and how they are called: no shell, listed options (D16)."""

from __future__ import annotations

from loomctl.kit.errors import LoomError

# Exact options; `name=` allows a value behind the sign, `name_` a value as the next word.
_HISTORY = (
    "--oneline --all --branches --tags --remotes --graph --decorate --decorate= --no-decorate --merges --no-merges "
    "--first-parent --reverse --follow --stat --stat= --shortstat --numstat --name-only --name-status --summary -p -u "
    "--patch --no-patch -s --date= --date-order --topo-order --abbrev-commit --abbrev= --format= --pretty --pretty= "
    "--max-count= --skip= --since= --after= --until= --before= --author= --committer= --grep= -i --all-match "
    "--diff-filter= --left-right --cherry-pick --no-color -w -b --ignore-all-space --ignore-space-change --unified= "
    "--word-diff --minimal --no-renames --find-renames --find-renames= -M --full-index --relative --no-notes "
    "--dirstat --cc --boundary --ancestry-path --simplify-by-decoration -n_ -S_ -G_ --since_ --until_ --author_ "
    "--grep_ --max-count_"
)
_DIFF = (
    "--cached --staged --merge-base --stat --stat= --shortstat --numstat --name-only --name-status --summary -p -u "
    "--patch --no-patch -s --diff-filter= --no-color -w -b --ignore-all-space --ignore-space-change "
    "--ignore-blank-lines --unified= --word-diff --minimal --patience --histogram --no-renames --find-renames "
    "--find-renames= -M --full-index --relative --check --dirstat --compact-summary --abbrev= -S_ -G_"
)
_ALLOWED = {
    "log": _HISTORY,
    "show": _HISTORY,
    "shortlog": "-s -n -e -sn -ns -sne -nse --summary --numbered --email --no-merges --merges --all --since= --after= "
    "--until= --before= --author= --format= --group= --max-count= --first-parent",
    "diff": _DIFF,
    "status": "-s -b -sb -bs --short --branch --porcelain --porcelain= --long --show-stash --ahead-behind "
    "--no-ahead-behind -uno -unormal -uall --untracked-files --untracked-files= --ignored --ignored= --renames "
    "--no-renames",
    "branch": "--show-current --list -a --all -r --remotes -v -vv -av -avv -rv --verbose --sort= --format= "
    "--contains= --no-contains= --merged --no-merged --merged= --no-merged= --points-at= --no-color --abbrev= "
    "--contains_",
    "rev-parse": "--short --short= --abbrev-ref --abbrev-ref= --verify -q --quiet --symbolic-full-name --show-toplevel "
    "--show-prefix --is-inside-work-tree --is-shallow-repository --branches --tags --remotes --all",
    "describe": "--tags --all --always --long --abbrev= --match= --exclude= --first-parent "
    "--exact-match --contains --candidates=",
}
_NUMBERED = {"log": ("-", "-n", "-U", "-M"), "show": ("-", "-n", "-U", "-M"), "diff": ("-U", "-M")}
_SHOWS_CHANGES = ("log", "show", "diff")
_NO_PATHS = ("branch", "rev-parse", "describe")
_SHELL_SIGNS = "|&;<>()$`\n\r"
# Settings of the repository that would start a program, reach the network or change the text.
_SETTINGS = (
    "core.fsmonitor=false",
    "protocol.allow=never",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "log.showSignature=false",
    "color.ui=false",
    "diff.submodule=short",
    "status.submoduleSummary=false",
)
# What a submodule's own files hold is asked of a git of its own there, under settings that nobody has looked at: its
# filters and monitors would run. Which commit it stands at is read without. (`describe --dirty` knows no such option,
# so it is not allowed.)
_NOT_WITHIN = "--ignore-submodules=dirty"


def git_command_problem(command: str) -> str | None:
    """Say why a `git_info` command is refused, or give None if it may run.

    command: `git log --oneline -10` or the same without `git`. Placeholders count as the text that they are.
    """
    try:
        _checked(_words(command))
    except _RefusedError as refused:
        return str(refused)
    return None


def git_argv(command: str) -> list[str]:
    """Give what follows `git` on the command line of an allowed command, all off that could start a program.

    command: its placeholders expanded already, so that what they bring is checked too. Raises GIT_COMMAND for what is
    not allowed.
    """
    try:
        words = _checked(_words(command))
    except _RefusedError as refused:
        what = f"Loom does not allow this git command: {command[:200]!r}"
        raise LoomError("GIT_COMMAND", what, why=str(refused), hint="git log --oneline -10") from None
    verb, rest = words[0], words[1:]
    argv = ["--no-pager", "--no-optional-locks"]
    for setting in _SETTINGS:
        argv += ["-c", setting]
    argv.append(verb)
    if verb in _SHOWS_CHANGES:
        argv += ["--no-ext-diff", "--no-textconv", "--submodule=short"]
    if verb in (*_SHOWS_CHANGES, "status"):
        argv.append(_NOT_WITHIN)
    if verb == "shortlog" and not any(word[:1] != "-" or word == "--all" for word in rest):
        rest = ["HEAD", *rest]  # without a revision it would wait for a log on stdin
    return argv + rest


class _RefusedError(Exception):
    pass


def _checked(words: list[str]) -> list[str]:
    """Give back the words from the subcommand on, or raise _RefusedError."""
    if words and words[0] == "git":
        words = words[1:]
    if not words:
        raise _RefusedError("the git subcommand is missing")
    verb = words[0]
    if verb not in _ALLOWED:
        what = "options before the subcommand" if verb[:1] == "-" else f"git {verb[:40]}"
        raise _RefusedError(f"Loom does not allow {what}; allowed are {', '.join(_ALLOWED)}")
    _check_words(verb, words[1:])
    return words


def _check_words(verb: str, words: list[str]) -> None:
    options = _ALLOWED[verb].split()
    listing = verb != "branch"
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            if verb in _NO_PATHS:
                raise _RefusedError(f"git {verb} takes no paths here")
            for path in words[at:]:
                _check_place(path)
            return
        if word[:1] != "-":
            if not listing:
                raise _RefusedError("git branch with a name would make a branch; put --list before a pattern")
            _check_place(word)
        elif word + "_" in options:
            if at >= len(words) or words[at][:1] == "-":
                raise _RefusedError(f"{word} needs a value")
            at += 1
        elif not _allowed_option(verb, word, options):
            raise _RefusedError(f"Loom does not allow the option {word[:60]} of git {verb}")
        listing = listing or word == "--list"


def _allowed_option(verb: str, word: str, options: list[str]) -> bool:
    name, equals, value = word.partition("=")
    if equals:
        # These fields of a format would start the signature program.
        return name + "=" in options and "%G" not in value and "signature" not in value
    if word in options and word[-1] != "_":
        return True
    for start in _NUMBERED.get(verb, ()):
        if word.startswith(start) and word[len(start) :].isascii() and word[len(start) :].isdigit():
            return True
    return False


def _check_place(word: str) -> None:
    """Refuse a revision or path that could reach out of the repository, or pathspec magic."""
    if not word:
        raise _RefusedError("an empty word")
    if word[0] == ":":
        raise _RefusedError(f"{word[:60]} is pathspec magic; use plain paths")
    slashed = word.replace("\\", "/")
    rooted = ("{project_root}", "{run_dir}", "{state_path}", "{plan_path}", "{plugin_root}", "<project_root>")
    if slashed[0] in "/~" or slashed[1:3] == ":/" or word.startswith(rooted):
        raise _RefusedError(f"{word[:60]} is an absolute path; write it relative to the project root")
    if ".." in slashed.split("/"):
        raise _RefusedError(f"{word[:60]} leads out of the project")


def _words(command: str) -> list[str]:
    """Split as a shell would split plain words with single and double quotes; anything more of a shell is refused."""
    words: list[str] = []
    word, quote, inside = "", "", False
    for character in command.strip():
        if character == "\0":
            raise _RefusedError("a NUL character")
        if quote:
            if character == quote:
                quote = ""
            else:
                word += character
        elif character in "'\"":
            quote, inside = character, True
        elif character in _SHELL_SIGNS:
            sign = "a line break" if character in "\n\r" else character
            raise _RefusedError(f"{sign} needs a shell; write one plain git command, with quotes if you like")
        elif character in " \t":
            if word or inside:
                words.append(word)
            word, inside = "", False
        else:
            word += character
    if quote:
        raise _RefusedError("a quote is not closed")
    if word or inside:
        words.append(word)
    return words
