"""What settings may say below `reduce:`, and how hooks read it: live excerpts, tools, rules (D48)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIVE = ("large", "off")
_MOST_RULES = 100


def kept(name: str, value: Any) -> Any:
    """Give `reduce.live` or `reduce.tools` as hooks read it: `off`, which YAML takes for false, is a word again."""
    if name == "reduce.live":
        return _live_word(value)
    return {
        tool: {**said, **({"live": _live_word(said["live"])} if "live" in said else {})} for tool, said in value.items()
    }


def misfit(name: str, value: object, threshold: tuple[int, int]) -> str:
    """Say what `reduce.live`, `.tools` or `.rules` should be; empty if it is that. threshold: (least, most)."""
    if name == "reduce.live":
        return "" if _live_word(value) in _LIVE else "large or off"
    return _misfit_tools(value, *threshold) if name == "reduce.tools" else _misfit_rules(value)


def _live_word(value: object) -> object:
    return "off" if value is False else value


def _misfit_tools(value: object, least: int, most: int) -> str:
    for said in value.values() if isinstance(value, dict) else [None]:
        if not isinstance(said, dict) or not said.keys() <= {"live", "live_threshold"}:
            return "a mapping of tools to live and live_threshold: Bash: {live: off}"
        if "live" in said and _live_word(said["live"]) not in _LIVE:
            return "for live: large or off"
        number = said.get("live_threshold", least)
        if type(number) is not int or not least <= number <= most:
            return f"for live_threshold: a whole number from {least} to {most}"
    return ""


def _misfit_rules(value: object) -> str:
    if not isinstance(value, list):
        return "a list of rules, each with a tool: - {tool: 'weather:get', keep: [location], template: '…'}"
    rules = value
    if len(rules) > _MOST_RULES:
        return f"a list of at most {_MOST_RULES} rules"
    return next((found for found in map(_misfit_rule, rules) if found), "")


def first_misfit(rules: object) -> str:
    """Give the number of the first rule that is none; empty where they are no list, or too many."""
    if not isinstance(rules, list) or len(rules) > _MOST_RULES:
        return ""
    return next((str(number) for number, rule in enumerate(rules) if _misfit_rule(rule)), "")


def _misfit_rule(rule: object) -> str:
    if not isinstance(rule, dict) or not isinstance(rule.get("tool"), str) or not rule["tool"]:
        return "a tool: - {tool: 'weather:get', keep: [location], template: '…'}"
    if not rule.keys() <= {"tool", "keep", "template", "threshold"}:
        return "tool, keep, template and threshold, and nothing else"
    keep = rule.get("keep", [])
    if not isinstance(keep, list) or not all(isinstance(name, str) and 0 < len(name) <= 200 for name in keep):
        return "for keep a list of arguments, by name or by a JSON path such as $.unit.name"
    for name in keep:
        if name.startswith("$") and _is_no_path(name):
            return f"for keep names and plain JSON paths such as $.unit.name or $.stops[0]; {name!r:.80} is neither"
    template = rule.get("template", "")
    if not isinstance(template, str) or len(template) > 400 or "\n" in template:
        return "for template one line of text, with {argument} and {result.key}"
    for part in template.split("{")[1:]:
        named, closed, _ = part.partition("}")
        if not closed or _is_no_path(named.strip()):
            shown = repr("{" + named + closed)
            return f"for template {{argument}} and {{result.key}} in one line of text; {shown:.80} is neither"
    threshold = rule.get("threshold", 0)
    fits = type(threshold) is int and 0 <= threshold <= 1_000_000
    return "" if fits else "for threshold a number of bytes up to 1000000, 0 for always"


def _is_no_path(text: str) -> bool:
    """Tell what `keep` and templates cannot read."""
    from loomctl.expressions.state_paths import compile_path

    return not text or compile_path(text) is None
