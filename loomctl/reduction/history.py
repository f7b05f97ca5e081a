"""The history of a run's tool steps under a token budget: the last ones in full, earlier ones a line each (D50).

Nothing here measures over its budget by an exact tokenizer: what is counted is `tokens.closely`.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line, visible
from loomctl.reduction.live import main_words
from loomctl.reduction.tokens import SPARE, closely, weight
from loomctl.reduction.tool_steps import EDIT, OTHER, READ, SEARCH, SHELL, WRITE, rule_for
from loomctl.reduction.working_set import Table

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
_DEEP, _QUOTES = 2, "`'\"("  # folders of a path of which its end alone is told there; what may stand around one
_ARGS = 60  # of the arguments of a tool that has no words of its own
_SMALL, _TABLE = 90, 0.7  # of what a budget is larger than this so much is set aside for files and names
_LAST = 0.4  # of it, for the newest record, if it is no larger
_NEWEST_SHARE = 0.35  # of it, for the newest lines before anything else
_TOO_LONG = 40_000  # characters of a text that no budget has room for
_ORDINARY = 2  # the rank of a step that neither failed nor wrote
_FAILED = "✗"
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
    whole or their first lines, failed steps, files written, the newest of the others; the rest is counted. Lines that
    are the same are one, with their number. More than half of the budget, if the twenty leave so much, is for a table
    of files and names that the next step is likely to use; of the rest a third is for failed steps and files written.
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
    page = _Page(token_budget - SPARE - 1 - weight(f"{_EARLIER}\n{_RECENT}\n{_counted(len(steps), index)}\n"))
    goal = f"Asked: {one_line(asked, _LINE)}" if asked.strip() else ""
    goal = goal if goal and page.takes(goal) else ""
    whole = len(steps) if len(steps) <= KEPT_WHOLE else min(len(steps), max(0, recent))
    lines = _lines(steps, len(steps) - whole)
    given = _given(steps, lines, page, whole)
    told = _Told(goal, given, {number: lines[number].times for number in lines}, whole)
    table = Table(told.text(len(steps), index), weight)
    page.left = table.fill(steps, page.left + page.table)
    for number in sorted(lines, reverse=True):  # what room the table leaves is for all the others
        if number not in given and page.takes(lines[number].told()):
            given[number] = lines[number].told()
    text = _joined(told.text(len(steps), index), table, token_budget)
    while given and closely(text) > token_budget:  # joined they can measure a little more than one by one
        given.popitem()  # what was taken last
        text = told.text(len(steps), index)
    if closely(text) <= token_budget:
        shown = sum(told.counts.get(number, 1) for number in given)
        whole_ones = sum(number not in lines and form == full(steps[number]) for number, form in given.items())
        return Compacted(text, whole_ones, shown - whole_ones, len(steps) - shown)
    shorter = (_counted(len(steps), index), _counted(len(steps), ""), str(len(steps)))
    return Compacted(next((form for form in shorter if closely(form) <= token_budget), ""), 0, 0, len(steps))


def _joined(text: str, table: Table, budget: int) -> str:
    while table.paths or table.names:
        longer = f"{text}\n{table.text()}"
        if closely(longer) <= budget:
            return longer
        (table.names or table.paths).pop()
    return text


class _Line(NamedTuple):
    """The line of an earlier step. times: so many were the same, of which this is the newest."""

    text: str
    rank: int
    times: int

    def told(self) -> str:
        return f"• {self.text}" + (f" ×{self.times}" if self.times > 1 else "")  # noqa: RUF001 - as it is meant


def _lines(steps: Sequence[ToolStep], upto: int) -> dict[int, _Line]:
    """Give the lines of earlier steps, those that are the same as one."""
    newest: dict[str, int] = {}
    times: dict[str, int] = {}
    for number in range(upto):
        text = line(steps[number])
        newest[text] = number
        times[text] = times.get(text, 0) + 1
    return {number: _Line(text, _rank(steps[number]), times[text]) for text, number in newest.items()}


def _given(steps: Sequence[ToolStep], lines: Mapping[int, _Line], page: _Page, whole: int) -> dict[int, str]:
    """Choose what is told of which step; the first to be left out stands last."""
    earlier = sorted(lines, key=lambda number: (lines[number].rank, -number))
    texts = {number: lines[number].told() for number in earlier}
    recent = range(len(steps) - whole, len(steps))
    given: dict[int, str] = {}
    if recent and not is_looms(steps[-1]):  # the newest comes before all lines, and why it failed
        part = 0.0 if steps[-1].success else page.left / 3
        page.takes_first(page.cuts(full(steps[-1]), page.left * _LAST, part), given, recent[-1])
    newest = [number for number in range(len(steps))[-NEWEST:] if number in lines or number in recent]
    short = page.shares({number: texts.get(number) or line(steps[number]) for number in newest if number not in given})
    page.sets_aside()
    important = [texts[number] for number in earlier if number not in short and lines[number].rank < _ORDINARY]
    kept = page.keeps(important, page.left / 3)
    for number in [number for number in reversed(recent) if number not in given]:  # the newest first
        page.gives_back(short.get(number, ""))
        records = [] if is_looms(steps[number]) else page.cuts(full(steps[number]), page.left, page.left / 2)
        page.takes_first([*records, line(steps[number]), short.get(number, "")], given, number)
    page.left += kept
    for number in [number for number in earlier if number in short or lines[number].rank < _ORDINARY]:
        page.gives_back(short.get(number, ""))
        page.takes_first([texts[number], short.get(number, "")], given, number)
    return given


class _Page:
    """What is left of a budget while lines are put one below the other.

    table: what is set aside for files and names.
    """

    def __init__(self, budget: float) -> None:
        self.budget = self.left = budget
        self.table = 0.0

    def sets_aside(self) -> None:
        self.table = max(0.0, min(self.left, (self.budget - _SMALL) * _TABLE))
        self.left -= self.table

    def takes(self, text: str) -> bool:
        cost = _cost(text)
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def takes_first(self, forms: Sequence[str], given: dict[int, str], number: int) -> None:
        """Put the first form that there is room for into what is given of this step."""
        form = next((form for form in forms if form and self.takes(form)), "")
        given.update({number: form} if form else {})

    @staticmethod
    def cuts(text: str, whole: float, part: float) -> list[str]:
        """Give a step's record whole if that much room is enough, else as many of its first lines as fit into part."""
        if _cost(text) <= whole:
            return [text]
        lines = text.split("\n")
        room, fit = part - 1, 0
        while fit < len(lines) and (room := room - _cost(lines[fit])) >= 0:
            fit += 1
        return ["\n".join(lines[:fit]) + " …"] if fit > 1 else []

    def keeps(self, lines: Sequence[str], most: float) -> float:
        """Keep room for lines that come later, as far as they fit into `most`; gives how much was kept."""
        kept = 0.0
        for form in lines:
            cost = _cost(form)
            if kept + cost > most:
                break
            kept += cost
        self.left -= kept
        return kept

    def shares(self, lines: Mapping[int, str]) -> dict[int, str]:
        """Keep room for all of these lines, each cut to its share; gives them, the newest alone where not all fit.

        What failed has three shares, for it says why.
        """
        share = self.left * _NEWEST_SHARE / max(1, len(lines)) - 1
        cuts = {number: _cut(text, share * (3 if _FAILED in text[:4] else 1)) for number, text in lines.items()}
        return {number: cuts[number] for number in sorted(cuts, reverse=True) if self.takes(cuts[number])}

    def gives_back(self, text: str) -> None:
        """Give back what was kept for a line, now that it comes."""
        self.left += _cost(text) if text else 0.0


def _cost(text: str) -> float:
    return weight(text) + 1 if len(text) < _TOO_LONG else float("inf")


def _cut(text: str, tokens: float) -> str:
    """Cut a line so that it has at most so many tokens, or to the shortest of _CUTS; of long paths the end stays."""
    if len(text) > _CUTS[-1] and weight(text) > tokens:
        text = " ".join(map(_path_cut, text.split(" ")))
    cuts = [one_line(text, units).replace(" (…", "…") for units in _CUTS]
    return next((cut for cut in cuts if weight(cut) <= tokens), cuts[-1])


def _path_cut(word: str) -> str:
    folder, _, name = word.rpartition("/")
    if folder.count("/") < _DEEP or "://" in word or not name.strip(_QUOTES):
        return word
    return f"{word[: len(word) - len(word.lstrip(_QUOTES))]}…/{name}"


class _Told(NamedTuple):
    """What is told: the goal, of the steps by their numbers, and for how many steps a line stands."""

    goal: str
    given: dict[int, str]
    counts: dict[int, int]
    whole: int

    def text(self, count: int, index: str) -> str:
        given, first = self.given, count - self.whole
        earlier = [given[number] for number in sorted(given) if number < first]
        recent = [given[number] for number in sorted(given) if number >= first]
        left = count - sum(self.counts.get(number, 1) for number in given)
        counted = [_counted(left, index)] if left else []
        parts = [self.goal, _EARLIER if earlier and recent else "", *earlier, *counted]
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
        text = f"{_FAILED} {text}" + (f": {why}" if why else "")
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


def _edited(_: ToolStep, first: str) -> str:
    return first.partition(" (-")[0]


def _wrote(_: ToolStep, first: str) -> str:
    return first.partition(" (")[0]


def _read(_: ToolStep, first: str) -> str:
    size = first.rpartition(" (")[2].partition(",")[0]
    return f"{first.rpartition(' (')[0]} ({size})" if size[:1].isdigit() else first


def _searched(step: ToolStep, first: str) -> str:
    query, count = step.minimal_args.get("query"), first.removeprefix("Found ").partition(" ")[0]
    return f"Searched '{query}'" + (f" → {count} results" if count.isdigit() else "") if isinstance(query, str) else ""


_SEPARATORS = ("&&", "||", ";", "|", "&", "(", "`")
_TOLD = {SHELL: _ran, WRITE: _wrote, EDIT: _edited, READ: _read, SEARCH: _searched}


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
