"""The page of settings and environment variables has them all, with their defaults and limits."""

import re

import pytest

from loomctl.runs import config
from tests.docs.pages import DOCS
from tests.helpers.scenes import CHECKOUT

PAGE = DOCS / "reference" / "configuration.md"
# Words in the source that look like a variable's name and are none.
NO_VARIABLES = {"LOOM_"}
# What a host, a shell or a system sets.
FOREIGN = re.compile(r"\b(?:CLAUDE|XDG)_[A-Z_]*[A-Z]\b|\bNO_COLOR\b|\bHOME\b")


def rows() -> dict[str, list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_setting_is_there_with_its_default_and_its_limits() -> None:
    listed = {name: row for name, row in rows().items() if not name.startswith("LOOM_")}
    defaults = config.Settings()
    assert set(listed) == set(config._USER) | set(config._PROJECT)
    for name, (default, allowed, yours, projects, _) in listed.items():
        value = getattr(defaults, config.field(name))
        shown = "none" if value in ((), None, {}) else str(value).lower() if isinstance(value, bool) else str(value)
        assert default.strip("`") == shown, name
        assert (yours, projects) == tuple("yes" if name in group else "no" for group in (config._USER, config._PROJECT))
        if name in config._NUMBERS:
            assert allowed == "{} to {}".format(*config._NUMBERS[name])


@pytest.mark.shows("[configuration](../reference/configuration.md#environment-variables) lists")
def test_every_environment_variable_is_there() -> None:
    sources = [*CHECKOUT.glob("loomctl/**/*.py"), CHECKOUT / "bin" / "loomctl", CHECKOUT / "hosts" / "launcher.sh"]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    known = {name for text in texts for name in re.findall(r"\bLOOM_[A-Z_]*\b", text)} - NO_VARIABLES
    assert {name for name in rows() if name.startswith("LOOM_")} == known


def test_every_variable_of_others_is_named() -> None:
    named = set(FOREIGN.findall(PAGE.read_text(encoding="utf-8")))
    found: set[str] = set()
    for path in CHECKOUT.glob("loomctl/**/*.py"):
        for match in re.findall(
            r'environ(?:\.get)?[\[(]"([A-Z_]+)"|_xdg\("([A-Z_]+)"', path.read_text(encoding="utf-8")
        ):
            found.update(name for name in match if name and FOREIGN.fullmatch(name))
    for name in re.findall(
        r"\$\{?((?:CLAUDE|XDG)_[A-Z_]+)", (CHECKOUT / "bin" / "loomctl").read_text(encoding="utf-8")
    ):
        found.add(name)
    assert found
    assert found - named == set()
