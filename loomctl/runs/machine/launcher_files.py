"""Small files that the launcher and hooks leave each other in `.loom/local`: firings, calls, texts, tool events.

`hooks/{event}` and `{event}.work` say when each hook last fired, and whether it ended. `hosts/{pid}.called` and
`.rested` count by their times alone: the assistant is about to call a tool; a turn ended or a prompt came. They are
named after the process, for a session's id is only a word in the environment; `{pid}.asked` holds the words of the call
that the host was told to ask its user about, and one decision uses it up (D68). `parts/{session_id}-{pid}.2`, `.3`, …
hold what the hook entries of that number print; `.by` says whom they wait for, at `.bell`, a pipe, and `.next` holds
what the hook behind a tool call adds to its result (D62). `spool/` holds events of tools until they are digested (D59).
"""

from __future__ import annotations

import os
import stat

from loomctl.kit import files, processes
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id, is_fit
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HOOKS, HOSTS, _PARTS, SPOOL = "hooks", "hosts", "parts", "spool"


def make_rooms(local: str) -> None:
    """Make the folders that the launcher writes into, without which it notes nothing. local: the store's `local`."""
    make_room_for_calls(local)
    for folder in (_HOOKS, _PARTS, SPOOL):
        files.make_room(local, folder)


def _has_room(local: str, name: str) -> bool:
    """Tell whether a folder is there, and no link stands where the launcher refuses one."""
    folder = os.path.join(local, name)
    return os.path.isdir(folder) and not any(map(os.path.islink, (os.path.dirname(local), local, folder)))


# ---- When each hook last fired.

# Every event that a host calls Loom for, as the files in hooks/ and the launcher name it.
EVENTS = (
    "session-start", "user-prompt-submit", "pre-tool-use", "post-tool-use", "post-tool-use-failure", "pre-compact",
    "post-compact", "stop", "session-end",
)  # fmt: skip
WORK = ".work"
_TOLD = "skew-told"


class Beat(NamedTuple):
    """at: seconds since 1970; session_id, version of the bundle and launcher's path: empty where they are not known."""

    at: float
    session_id: str
    version: str
    launcher: str


def has_room_for_beats(local: str) -> bool:
    """Tell whether firings are noted here."""
    return _has_room(local, _HOOKS)


def beats_folder(local: str) -> str:
    """Give the folder in which firings are noted."""
    return os.path.join(local, _HOOKS)


def signs(local: str, since: float = 0) -> frozenset[str]:
    """Give the ids of sessions of which a hook left a sign: it fired last, marked its host, or recorded a tool call.

    since: of older ones nothing counts, in seconds since 1970.
    """
    found = {beat.session_id for beat in beats(local).values() if beat.at > since}
    for pid in marked_processes(local):
        for kind in (CALLED, RESTED):
            if _time(_mark(local, pid, kind)) <= since:
                continue
            try:
                found.add(
                    files.read_bytes(_mark(local, pid, kind), limit=1 << 14).decode("utf-8", "replace").split()[-1]
                )
            except (OSError, LoomError, IndexError):
                continue
    for event in (*spooled(local), *spooled(local, UNFINISHED)):
        if event.at > since * 1e9:
            found.update(sessions_of(event.name))
    return frozenset(found - {"", "-"})


def beats(local: str) -> dict[str, Beat]:
    """Give the last firing of each event that ever fired here."""
    found = {}
    for event, line, at in _noted(local, ""):
        version, _, rest = line.partition(" ")
        session_id, _, launcher = rest.partition(" ")
        found[event] = Beat(at, "" if session_id == "-" else session_id, version, launcher)
    return found


def begun(local: str) -> dict[str, float]:
    """Give since when hooks work that have not ended their work, by event; seconds since 1970.

    The launcher notes `begun` before it starts Python, and `ended` over it afterwards: what a host has killed, for it
    took too long, stays begun.
    """
    return {event: at for event, line, at in _noted(local, WORK) if line.startswith("begun")}


def excuse(local: str, since: float) -> None:
    """Count as ended what hooks have begun since a time: whoever started their assistant has ended it, and no host."""
    for event, at in begun(local).items():
        if at >= since:
            try:
                files.write_atomically(os.path.join(local, _HOOKS, event + WORK), b"ended\n", durable=False)
            except OSError:  # what is told of it then is old news soon
                continue


def _noted(local: str, ending: str) -> Iterable[tuple[str, str, float]]:
    for event in EVENTS if has_room_for_beats(local) else ():
        path = os.path.join(local, _HOOKS, event + ending)
        try:
            if not os.path.islink(path):
                line = files.read_bytes(path, limit=1 << 14).decode("utf-8", "replace").partition("\n")[0]
                yield event, line, os.stat(path).st_mtime
        except (OSError, LoomError):
            continue


def version_in(local: str, session_id: str) -> str:
    """Give the version of the bundle whose hook fired last in a session; empty if none did, or another's came after."""
    own = [beat for beat in beats(local).values() if beat.session_id == session_id]
    return max(own, key=lambda beat: beat.at).version if own else ""


def is_first_telling(local: str, what: str) -> bool:
    """Tell whether this has not been said yet, and note that it is now; where nothing can be noted it is said again."""
    path = os.path.join(local, _HOOKS, _TOLD)
    try:
        if files.read_bytes(path, limit=1 << 14) == what.encode():
            return False
    except (OSError, LoomError):
        pass
    try:
        if has_room_for_beats(local):
            files.write_atomically(path, what.encode(), durable=False)
    except OSError:
        pass
    return True


# ---- When an assistant's process last called a tool, rested, and had its user asked.

CALLED, RESTED, ASKED = "called", "rested", "asked"


class Marks(NamedTuple):
    """Times in seconds since 1970, 0 where there is none. words: of the call that the user was asked about.

    host: whose process rests, as its hooks said; empty where they did not.
    """

    called: float = 0
    rested: float = 0
    asked: float = 0
    words: frozenset[str] = frozenset()
    host: str = ""

    @property
    def last(self) -> float:
        """The time of the newest of them."""
        return max(self.called, self.rested, self.asked)


def make_room_for_calls(local: str) -> None:
    """Make the folder of the marks, and remove those of processes that have ended, of the user's own folder too."""
    from loomctl.kit import machine  # hooks mark by themselves

    files.make_room(local, HOSTS)
    for base in filter(None, (local, machine.state_home())):
        for pid in marked_processes(base):
            if not processes.started(pid):
                for kind in ("", f".{CALLED}", f".{RESTED}", f".{ASKED}"):
                    files.remove(os.path.join(base, HOSTS, f"{pid}{kind}"))


def marks_lead_away(local: str) -> bool:
    """Tell whether something stands where the marks belong that is no folder, or a link: the launcher marks nothing."""
    return os.path.lexists(os.path.join(local, HOSTS)) and not _has_room(local, HOSTS)


def marked_processes(local: str) -> frozenset[int]:
    """Give the numbers of the processes that have marks."""
    folder = os.path.join(local, HOSTS)
    if files.leads_away(os.path.dirname(local), folder):
        return frozenset()
    try:
        names = {name.partition(".")[0] for name in os.listdir(folder)}
    except OSError:
        return frozenset()
    return frozenset(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 10)


def session_of(local: str, pid: int, host: str) -> str:
    """Give the session whose tool call a process marked last, for a host; empty where there is none."""
    try:
        words = files.read_bytes(_mark(local, pid, CALLED), limit=1 << 14).decode("utf-8", "replace").split()
    except (OSError, LoomError):
        return ""
    return words[1] if len(words) == 2 and words[0] == host and is_fit(words[1]) else ""


def marks(local: str, pid: int) -> Marks:
    """Read the marks of a process."""
    called, rested, asked = (_time(_mark(local, pid, kind)) for kind in (CALLED, RESTED, ASKED))
    if called and not _may_be_renewed(_mark(local, pid, CALLED)):
        called = float("inf")  # nobody knows when the last call was
    try:
        words = files.read_bytes(_mark(local, pid, ASKED), limit=1 << 16).decode("utf-8", "replace").split()
    except (OSError, LoomError):
        words = []
    return Marks(called, rested, asked, frozenset(words), _host_of(_mark(local, pid, RESTED)))


def _host_of(mark: str) -> str:
    try:
        words = files.read_bytes(mark, limit=1 << 14).decode("utf-8", "replace").split()
    except (OSError, LoomError):
        return ""
    return words[0] if len(words) == 2 else ""


def note_asked(local: str, pid: int, words: Iterable[str]) -> None:
    """Note that the host is told to ask its user about the next call. Raises OSError and UNSAFE_LINK.

    words: of that call, as its text shows them, without white space in them.
    """
    path = _mark(local, pid, ASKED)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, "\n".join(words).encode("utf-8", "replace"), durable=False)


def use_up_asked(local: str, pid: int) -> bool:
    """Take the note of the call that the user was asked about; tells whether this process got it, and no other."""
    try:
        os.unlink(_mark(local, pid, ASKED))
    except OSError:
        return False
    return True


def _may_be_renewed(path: str) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode) and os.access(path, os.W_OK)


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0


def _mark(local: str, pid: int, kind: str) -> str:
    return os.path.join(local, HOSTS, f"{pid}.{kind}")


# ---- The parts of one long text, left for the hook entries of the same event that only print them.

MOST_PARTS = 4  # entries that the bundle has for one session start
_WORKER, _BELL, _BEHIND = ".by", ".bell", ".next"


def has_room_for_parts(local: str) -> bool:
    """Tell whether parts can be left here: what the launcher asks of the folder, too."""
    return _has_room(local, _PARTS) and os.access(os.path.join(local, _PARTS), os.W_OK)


def leave_behind_a_call(local: str, session_id: str | None, pid: int | None, output: str) -> None:
    """Leave what the hook prints that follows the tool call which is running now; without room, nothing."""
    if session_id is None or not has_room_for_parts(local):
        return
    path = os.path.join(local, _PARTS, f"{checked_id(session_id, what='session id')}-{pid or 0}{_BEHIND}")
    try:
        files.write_atomically(path, output.encode("utf-8", "backslashreplace"), durable=False)
    except OSError:
        return


def hold_bell(base: str) -> int:
    """Make the pipe at which the others wait; it is held open by this process alone. Gives -1 where there is none.

    base: as for `leave_parts`.
    """
    new = f"{base}{_BELL}.new"
    try:
        os.mkfifo(new, 0o600)
        bell = os.open(new, os.O_RDWR)
        os.rename(new, base + _BELL)  # held before anybody sees it
    except OSError:  # then they look again and again
        return -1
    return bell


def leave_parts(base: str, outputs: Sequence[str], count: int, bell: int = -1) -> None:
    """Leave what the entries from the second to the last print, nothing for those behind; ring, a line for each.

    base: the path that the launcher named; outputs: in order; count: how many entries there are; bell: as `hold_bell`
    gives it. Raises OSError.
    """
    for number in range(2, count + 1):
        output = outputs[number - 2] if number - 2 < len(outputs) else ""
        files.write_atomically(f"{base}.{number}", output.encode("utf-8", "backslashreplace"), durable=False)
    files.remove(base + _WORKER)
    files.remove(base + _BELL)
    if bell >= 0:
        os.write(bell, b"\n" * (count - 1))


# ---- Events of tools, each in a file that the launcher wrote and that `recording` digests.

BAD = ".bad"
UNFINISHED = ".unfinished"
"""What the name of a file ends with that somebody began to digest, and was killed: hooks pass it over (D59)."""
EVENT = ".json"
_STORED, _TAIL = b'"bytes": ', 400  # what the hook that stores an output notes at the end of its event


class Spooled(NamedTuple):
    """A file of the spool.

    name: as the launcher gave it; at: when it was written, ns since 1970; plain: whether it is a file and no link.
    """

    name: str
    path: str
    at: int
    bytes: int
    plain: bool


def spooled(local: str, ending: str = EVENT) -> list[Spooled]:
    """Give what waits to be digested, in the order it was written; nothing where a link leads to it.

    ending: `UNFINISHED` for what was set aside.
    """
    folder = os.path.join(local, SPOOL)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(ending) or entry.name.startswith("."):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process digested it
                    continue
                plain = stat.S_ISREG(status.st_mode)
                name = entry.name.removesuffix(UNFINISHED)
                found.append(Spooled(name, entry.path, status.st_mtime_ns, status.st_size, plain))
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.at, one.name))


def weight(event: Spooled) -> int:
    """Give what a file costs to digest, in its bytes: a third of what it stands for is added, where a hook stored that.

    The third is what masking and looking cost beside parsing at their worst. What cannot be read weighs its bytes.
    """
    if not event.plain:  # a pipe would never end
        return event.bytes
    try:
        with open(event.path, "rb") as source:
            source.seek(max(0, event.bytes - _TAIL))
            noted = source.read(_TAIL).rpartition(_STORED)[2]
    except OSError:
        return event.bytes
    size = noted.partition(b",")[0].strip(b" }\n")
    return event.bytes + (int(size) // 3 if size.isdigit() and len(size) < 16 else 0)


def sessions_of(name: str) -> list[str]:
    """Give the session ids that a file of this name can be of: `{session}-{pid}.json` or `{session}-{pid}-{n}.json`."""
    stem, found = name.removesuffix(EVENT), []
    for _ in range(2):
        stem, dash, number = stem.rpartition("-")
        if not dash or not (number.isascii() and number.isdigit()):
            break
        found.append(stem)
    return found
