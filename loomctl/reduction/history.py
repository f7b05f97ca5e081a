"""The history of a run's tool steps under a token budget: the last ones in full, earlier ones a line each (D50).

Nothing here measures over its budget by an exact tokenizer: what is counted is `tokens.at_most`.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line, visible
from loomctl.reduction.live import main_words
from loomctl.reduction.tokens import at_most
from loomctl.reduction.tool_steps import EDIT, OTHER, READ, SEARCH, SHELL, WRITE, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.reduction.tool_steps import ToolStep

KEPT_WHOLE = 5  # so many steps need no compaction
RECENT = 3
NEWEST = 20  # so many are told each, if only by the beginning of a line
BUDGET = 500
_LINE = 160  # UTF-16 units of an earlier step's line
_CUTS = (160, 100, 72, 52, 36, 24)  # what is left of such a line where twenty of them have to fit
_ARGS = 60  # of the arguments of a tool that has no words of its own
_ORDINARY = 2  # the rank of a step that neither failed nor wrote
_EARLIER, _RECENT = "Earlier steps:", "Recent steps:"


class Compacted(NamedTuple):
    """A history. full, short: how many steps it gives in full and by a line; counted: those that it only counts."""

    text: str
    full: int
    short: int
    counted: int


def compact_history(
    steps: Sequence[ToolStep], token_budget: int = BUDGET, *, asked: str = "", recent: int = RECENT, index: str = ""
) -> str:
    """Give the steps, oldest first, in at most `token_budget` tokens; "" where not even their number fits.

    Up to five steps are given in full, of more the last `recent`, as far as there is room; the others, and Loom's own
    commands, by a line each. What is kept first: what the user asked for, the twenty newest, cut if need be, the recent
    whole, failed steps, files written, the newest of the others; the rest is counted. For failed steps and files
    written a third of what the twenty leave is kept, if they need it.
    index: where everything can be found, named where something was left out. Steps may lack anything; nothing is
    raised.
    """
    return compacted(steps, token_budget, asked=asked, recent=recent, index=index).text


def compacted(
    steps: Sequence[ToolStep], token_budget: int = BUDGET, *, asked: str = "", recent: int = RECENT, index: str = ""
) -> Compacted:
    """Give what `compact_history` does, and how much of it is told in which form."""
    if not steps or token_budget < 1:
        return Compacted("", 0, 0, len(steps))
    whole = len(steps) if len(steps) <= KEPT_WHOLE else min(len(steps), max(0, recent))
    page = _Page(token_budget - at_most(f"{_EARLIER}\n{_RECENT}\n{_counted(len(steps), index)}"))
    goal = f"Asked: {one_line(asked, _LINE)}" if asked.strip() else ""
    goal = goal if goal and page.takes(goal) else ""
    given: dict[int, str] = {}
    earlier = sorted(range(len(steps) - whole), key=lambda number: (_rank(steps[number]), -number))
    lines = {number: f"• {line(steps[number])}" for number in earlier}
    short = page.shares({number: lines.get(number) or line(steps[number]) for number in range(len(steps))[-NEWEST:]})
    important = [lines[number] for number in earlier if number not in short and _rank(steps[number]) < _ORDINARY]
    kept = page.keeps(important, page.left // 3)
    for number in reversed(range(len(steps) - whole, len(steps))):  # the newest first
        page.gives_back(short.get(number, ""))
        forms = [line(steps[number])] if is_looms(steps[number]) else [full(steps[number]), line(steps[number])]
        form = next((form for form in (*forms, short.get(number)) if form and page.takes(form)), None)
        given.update({} if form is None else {number: form})
    page.left += kept
    for number in earlier:
        page.gives_back(short.get(number, ""))
        form = next((form for form in (lines[number], short.get(number)) if form and page.takes(form)), None)
        given.update({} if form is None else {number: form})
    text = _joined(goal, given, len(steps), whole, index)
    while given and at_most(text) > token_budget:  # joined they can measure a little more than one by one
        given.popitem()  # what was taken last
        text = _joined(goal, given, len(steps), whole, index)
    if at_most(text) <= token_budget:
        whole_ones = sum(number >= len(steps) - whole and form == full(steps[number]) for number, form in given.items())
        return Compacted(text, whole_ones, len(given) - whole_ones, len(steps) - len(given))
    shorter = (_counted(len(steps), index), _counted(len(steps), ""), str(len(steps)))
    return Compacted(next((form for form in shorter if at_most(form) <= token_budget), ""), 0, 0, len(steps))


class _Page:
    """What is left of a budget while lines are put one below the other."""

    def __init__(self, budget: int) -> None:
        self.left = budget

    def takes(self, text: str) -> bool:
        cost = at_most(text) + 1
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def keeps(self, lines: Sequence[str], most: int) -> int:
        """Keep room for lines that come later, as far as they fit into `most`; gives how much was kept."""
        kept = 0
        for form in lines:
            cost = at_most(form) + 1
            if kept + cost > most:
                break
            kept += cost
        self.left -= kept
        return kept

    def shares(self, lines: Mapping[int, str]) -> dict[int, str]:
        """Keep room for all of these lines, each cut to its share; gives them, the newest alone where not all fit."""
        share = self.left // max(1, len(lines)) - 1
        cuts = {number: _cut(text, share) for number, text in lines.items()}
        return {number: cuts[number] for number in sorted(cuts, reverse=True) if self.takes(cuts[number])}

    def gives_back(self, text: str) -> None:
        """Give back what was kept for a line, now that it comes."""
        self.left += at_most(text) + 1 if text else 0


def _cut(text: str, tokens: int) -> str:
    """Cut a line so that it has at most so many tokens, or to the shortest of _CUTS."""
    cuts = [one_line(text, units).replace(" (…", "…") for units in _CUTS]
    return next((cut for cut in cuts if at_most(cut) <= tokens), cuts[-1])


def _joined(goal: str, given: dict[int, str], count: int, whole: int, index: str) -> str:
    earlier = [given[number] for number in sorted(given) if number < count - whole]
    recent = [given[number] for number in sorted(given) if number >= count - whole]
    counted = [_counted(count - len(given), index)] if len(given) < count else []
    parts = [goal, _EARLIER if earlier and recent else "", *earlier, *counted]
    parts += [_RECENT if recent and (earlier or counted) else "", *recent]
    return "\n".join(part for part in parts if part)


def full(step: ToolStep) -> str:
    """Give a step with all its signal, and where the original stands."""
    signal = step.observation.partition("\n")[2]
    where = f" → {step.outcome_ref}" if step.outcome_ref else ""
    return visible(f"{called(step)}{where}" + (f"\n{signal}" if signal else ""))


def called(step: ToolStep, longest: int = _LINE) -> str:
    """Say what was called, and what came of it. longest: UTF-16 units of a shell's command."""
    first, _, signal = (step.observation or step.tool_name or "a step without a name").partition("\n")
    command = step.minimal_args.get("command")
    if not isinstance(command, str) or not command or rule_for(step.tool_name).action != SHELL:
        return _with_args(step, first)
    ended = first.partition(": ")[2] or first
    if step.outcome_ref is None and signal:  # its lines stand below, so they need not be counted
        ended = ended.partition(",")[0]
    return f"`{one_line(command, longest)}`: {ended}"


def line(step: ToolStep) -> str:
    """Give a step on one line, in the document's words (context-reduction.md, Compaction Templates)."""
    first = step.observation.partition("\n")[0] or step.tool_name or "a step without a name"
    told = _TOLD.get(rule_for(step.tool_name).action)
    text = (told(step, first) if told is not None and (step.success or told is _ran) else "") or _with_args(step, first)
    if not step.success:
        signal = step.observation.split("\n")[1:]
        why = next((said for said in signal if not said.removeprefix("Exit code ").isdigit()), "")
        text = f"✗ {text}" + (f": {why}" if why else "")
    return one_line(text, _LINE)


def _with_args(step: ToolStep, first: str) -> str:
    """Say what a tool was called with whose words say its name alone: `mcp__a__b(number=12): ok, 70 bytes JSON`."""
    name, colon, ended = first.partition(": ")
    if not colon or name != step.tool_name or rule_for(step.tool_name).action != OTHER:
        return first
    said = ", ".join(
        f"{key}={value}" for key, value in step.minimal_args.items() if isinstance(value, (str, int, float))
    )
    return f"{name}({one_line(said, _ARGS)}): {ended}" if said else first


def _ran(step: ToolStep, first: str) -> str:
    command = step.minimal_args.get("command")
    ended = first.partition(": ")[2].partition(",")[0] or first
    return f"Ran `{one_line(command, 80)}` ({ended})" if isinstance(command, str) else ""


def _wrote(_: ToolStep, first: str) -> str:
    return first.partition(" (")[0]


def _read(_: ToolStep, first: str) -> str:
    size = first.rpartition(" (")[2].partition(",")[0]
    return f"{first.rpartition(' (')[0]} ({size})" if size[:1].isdigit() else first


def _searched(step: ToolStep, first: str) -> str:
    query, count = step.minimal_args.get("query"), first.removeprefix("Found ").partition(" ")[0]
    return f"Searched '{query}'" + (f" → {count} results" if count.isdigit() else "") if isinstance(query, str) else ""


_SEPARATORS = ("&&", "||", ";", "|", "&", "(", "`")
_TOLD = {SHELL: _ran, WRITE: _wrote, READ: _read, SEARCH: _searched}


def _rank(step: ToolStep) -> int:
    if not step.success:
        return 0
    return 1 if rule_for(step.tool_name).action in (WRITE, EDIT) else _ORDINARY


def is_looms(step: ToolStep) -> bool:
    """Tell Loom's own commands: what they print stands in the run already."""
    command = step.minimal_args.get("command")
    if not isinstance(command, str) or rule_for(step.tool_name).action != SHELL:
        return False
    return _is_loomctl(command)


def has_looms(step: ToolStep) -> bool:
    """Tell a shell command in which `loomctl` is called at all, as in `echo done | loomctl done`: it saves nothing."""
    command = step.minimal_args.get("command")
    if not isinstance(command, str) or "loomctl" not in command or rule_for(step.tool_name).action != SHELL:
        return False
    for separator in _SEPARATORS:
        command = command.replace(separator, "\n")
    return any(_is_loomctl(part) for part in command.split("\n"))


def _is_loomctl(command: str) -> bool:
    return [*main_words(command), ""][0].strip("\"'").rpartition("/")[2] == "loomctl"


def _counted(count: int, index: str) -> str:
    return f"{count} more steps" + (f": {index}" if index else "")
