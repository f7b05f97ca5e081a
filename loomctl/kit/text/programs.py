"""Which programs a shell command names, as far as its text tells: the first word of each simple command in it. Pure."""

from __future__ import annotations

import shlex

_BETWEEN = frozenset({";", "&", "|", "&&", "||", "|&", ";;", "(", ")", "\n", "!", "{", "}"})
# Words of the shell's own before or instead of a program.
_LEADING = "if then else elif do while until time exec command env nohup"
_BUILT_IN = """fi done for case esac in function select [ [[ ]] : . source cd echo printf test true false export set
unset exit return read eval trap shift umask ulimit wait kill pwd type alias local declare break continue"""
_BEFORE, _OWN = frozenset(_LEADING.split()), frozenset(_BUILT_IN.split())
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")


def named_in(command: str) -> list[str]:
    """List the programs that a command would look for on PATH, each once; nothing of what cannot be read.

    A word that names a path, that a variable or a substitution makes, or that is the shell's own is none.
    """
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that does not end
        return []
    found: dict[str, None] = {}
    first, target = True, False
    for word in words:
        if target:  # of a redirection
            target = False
        elif word and not set(word) - set("<>&|") and ("<" in word or ">" in word):
            target = True
        elif word in _BETWEEN or not set(word) - set(";&|()"):
            first = True
        elif first and word not in _BEFORE and not _assigns(word):
            first = False
            if word not in _OWN and _PLAIN.issuperset(word) and not word.startswith(("-", ".")):
                found[word] = None
    return list(found)


def _assigns(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
