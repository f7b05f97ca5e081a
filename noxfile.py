"""The suite on every Python that Loom supports: `nox`, or `nox -s tests-3.12 -- tests/flow` for a part of it."""

from __future__ import annotations

import nox

nox.options.error_on_missing_interpreters = True


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Install the locked packages and run pytest; the assistant is the one that LOOM_TEST_CLAUDE names."""
    session.install("--require-hashes", "-r", "requirements-dev.lock")
    session.run("pytest", *(session.posargs or ["-m", "not corpus"]))
