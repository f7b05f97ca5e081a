"""A queue's rows in SQL that SQLite and PostgreSQL both speak.

Each change of a run is judged by who has it and for which time (`worker`, `attempt`), inside one transaction, so a
worker that was taken for dead changes nothing any more. How many runs of a lane stand how is counted as they change.
"""

from __future__ import annotations

import json
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from loomctl.fleet.model import (
    AFTER,
    DONE,
    DRIVEN,
    FAILED,
    IN_A_ROW,
    LATER,
    OVER,
    QUEUED,
    Lane,
    Limits,
    Progress,
    Row,
    Signed,
)
from loomctl.fleet.port import Alike, Hold, Standing, Worker
from loomctl.kit.text.fences import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomctl.fleet.schema import Ask, Database

_COLUMNS = (
    "run_id, handle, lane, state, priority, not_before, since, revision, cost, worker, attempt, asked, step, more"
)
_QUEUED = f"SELECT priority, seq, {_COLUMNS} FROM runs WHERE lane = ? AND state = 'queued' ORDER BY priority, seq"
_RENEWED = ", ".join(f"{one} = excluded.{one}" for one in [*_COLUMNS.split(", ")[1:], "signature"])
_MORE = ("goal", "after", "kind", "why", "command", "commit", "machine")
_A_FEW = 3
_DRIVES = "(SELECT COUNT(*) FROM runs WHERE runs.worker = workers.id AND runs.state = 'driven')"  # looked up for each
_DEAD = f"repository = ? AND signed < ? AND {_DRIVES} > 0"
_OLD = f"FROM workers WHERE signed < ? AND {_DRIVES} = 0"
_AT_ONCE = 100  # rows of one transaction: others wait for its end
_FORGOTTEN = 86_400.0  # seconds without a sign after which a worker that drives nothing is forgotten


class Table:
    """The rows of one repository: a `Queue`, wherever they stand."""

    def __init__(self, base: Database, repository: str) -> None:
        self._base, self._repository = base, repository
        self._lanes: dict[str, Lane] = {}  # by name; they never change
        self._found_none = False

    # ---- The four verbs.

    def offer(self, rows: Sequence[Row]) -> int:
        """As `Queue` says."""
        return sum(self._offer(rows[at : at + _AT_ONCE]) for at in range(0, len(rows), _AT_ONCE))

    def _offer(self, rows: Sequence[Row]) -> int:
        news = 0
        with self._base.transaction() as ask:
            now = self._base.now(ask)
            for row in rows:
                known = self._row(ask, row.run_id)
                if known is not None and (known.state == DRIVEN or row.revision < known.revision):
                    continue
                cost = max(row.cost, known.cost if known is not None else 0.0)  # a dead machine's state may lack some
                made = self._ready(ask, row._replace(since=row.since or now, cost=cost))
                if known is not None and _same(known, made):
                    continue
                made = made._replace(worker="", machine="", attempt=known.attempt if known is not None else 0, asked="")
                self._write(ask, known, made)
                news += 1
        return news

    def claim(self, worker: Worker, limits: Limits) -> Row | None:
        """As `Queue` says."""
        if self._found_none and not self._may_find(limits):
            return None
        self._found_none = True
        with self._base.transaction() as ask:
            now = self._base.now(ask)
            self._let_due(ask, now)
            lanes = self._open(ask, limits, now)
            known = self._pick(ask, lanes)
            if known is None:
                return None
            taken = known._replace(state=DRIVEN, since=now, attempt=known.attempt + 1)
            taken = taken._replace(worker=worker.id, machine=worker.machine)
            self._write(ask, known, taken)
            self._note(ask, worker)
        self._found_none = False
        return taken

    def _may_find(self, limits: Limits) -> bool:
        """Look without the lock: who found nothing asks again and again, and most often there is nothing still."""
        with self._base.transaction(writes=False) as ask:
            now = self._base.now(ask)
            return bool(self._open(ask, limits, now) or self._due(ask, now))

    def sign(self, worker: Worker, progress: Sequence[Progress]) -> Signed:
        """As `Queue` says."""
        lost: set[str] = set()
        asked: dict[str, str] = {}
        costs: dict[Lane, float] = {}
        with self._base.transaction(alone=False) as ask:
            self._note(ask, worker, "signed = excluded.signed, slots = excluded.slots")
            words = f"SELECT {_COLUMNS} FROM runs WHERE worker = ? AND state = 'driven' AND repository = ?"
            has = {row.run_id: row for row in [self._of(ask, one) for one in ask(words, worker.id, self._repository)]}
            for one in sorted(progress):
                known = has.pop(one.run_id, None)
                if known is None or known.attempt != one.attempt:
                    lost.add(one.run_id)
                    continue
                if known.asked:
                    asked[one.run_id] = known.asked
                if (known.cost, known.step) != (one.cost, one.step):
                    costs[known.lane] = costs.get(known.lane, 0.0) + one.cost - known.cost
                    words = "UPDATE runs SET cost = ?, step = ? WHERE repository = ? AND run_id = ?"
                    ask(words, one.cost, _plain(one.step), self._repository, one.run_id)
            spent = self._spent(ask) + sum(costs.values())
            for lane in sorted(costs):  # last, for others wait for its row
                self._spend(ask, lane, costs[lane])
        if has:  # their claims arrived, and the answers to them were lost
            with self._base.transaction() as ask:
                self._offer_again(ask, [*has.values()])
        return Signed(frozenset(lost), asked, spent)

    def _note(self, ask: Ask, worker: Worker, renews: str = "") -> None:
        """Note a worker as one that lives; who reaps takes its row before its runs, so until the end nobody does."""
        words = "INSERT INTO workers VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO "
        words += f"UPDATE SET {renews}" if renews else "NOTHING"
        ask(words, worker.id, self._repository, worker.machine, worker.slots, self._base.now(ask))

    def _offer_again(self, ask: Ask, rows: list[Row]) -> list[Row]:
        for known in rows:
            self._write(ask, known, known._replace(state=QUEUED, worker="", machine="", since=self._base.now(ask)))
        return rows

    def settle(self, worker: Worker, row: Row) -> bool:
        """As `Queue` says."""
        with self._base.transaction() as ask:
            known = self._row(ask, row.run_id)
            if known is None or (known.state, known.worker, known.attempt) != (DRIVEN, worker.id, row.attempt):
                return False
            made = self._ready(ask, row._replace(worker="", machine="", since=self._base.now(ask)))
            self._write(ask, known, made)
            self._judge(ask, made)
        return True

    def reap(self, limit: float) -> list[Row]:
        """As `Queue` says."""
        every: list[Row] = []
        while self._is_any_dead(limit):  # most often not, and that holds nobody up
            every += self._reap(limit)
        return every

    def _is_any_dead(self, limit: float) -> bool:
        with self._base.transaction(writes=False) as ask:
            now = self._base.now(ask)
            dead = ask(f"SELECT 1 FROM workers WHERE {_DEAD} LIMIT 1", self._repository, now - limit)
            return bool(dead or ask(f"SELECT 1 {_OLD} LIMIT 1", now - max(_FORGOTTEN, limit)))

    def _reap(self, limit: float) -> list[Row]:
        words = f"SELECT {_COLUMNS} FROM runs WHERE worker = ? AND state = 'driven'"
        with self._base.transaction() as ask:
            now = self._base.now(ask)
            # Whoever signs just now is waited for, and is not dead then.
            dead = ask(f"UPDATE workers SET slots = slots WHERE {_DEAD} RETURNING id", self._repository, now - limit)
            rows = (self._of(ask, one) for (worker,) in dead for one in ask(words, worker))
            found = [*islice(rows, _AT_ONCE)]
            ask(f"DELETE {_OLD}", now - max(_FORGOTTEN, limit))
            return self._offer_again(ask, found)

    def leave(self, worker: Worker) -> None:
        """As `Queue` says."""
        with self._base.transaction() as ask:
            ask("DELETE FROM workers WHERE id = ?", worker.id)

    def may_look(self, every: float) -> bool:
        """As `Queue` says."""
        words = "INSERT INTO looks VALUES (?, ?) ON CONFLICT (repository) DO UPDATE SET at = excluded.at "
        words += "WHERE looks.at <= ? RETURNING at"
        with self._base.transaction(alone=False) as ask:
            now = self._base.now(ask)
            return bool(ask(words, self._repository, now, now - every))

    # ---- What people steer.

    def ask(self, run_id: str, what: str) -> bool:
        """As `Queue` says."""
        words = "UPDATE runs SET asked = ? WHERE repository = ? AND run_id = ? AND state = 'driven' RETURNING run_id"
        with self._base.transaction() as ask:
            return bool(ask(words, what, self._repository, run_id))

    def hold(self, host: str, until: float, why: str) -> None:
        """As `Queue` says."""
        words = (
            "INSERT INTO hosts VALUES (?, ?, ?) ON CONFLICT (host) DO UPDATE SET until = excluded.until, "
            "why = excluded.why WHERE hosts.until < excluded.until"
        )
        with self._base.transaction() as ask:
            ask(words, host, until, why)

    def pause(self, workflow: str, why: str) -> int:
        """As `Queue` says."""
        words = (
            "UPDATE lanes SET paused = ?, signature = '', alike = 0 WHERE repository = ? AND workflow = ? "
            "AND paused <> ? RETURNING name"
        )
        with self._base.transaction() as ask:
            return len(ask(words, why, self._repository, workflow, why))

    def drop(self, run_ids: Sequence[str]) -> int:
        """As `Queue` says."""
        return sum(self._drop(run_ids[at : at + _AT_ONCE]) for at in range(0, len(run_ids), _AT_ONCE))

    def _drop(self, run_ids: Sequence[str]) -> int:
        gone = 0
        with self._base.transaction() as ask:
            for run_id in run_ids:
                known = self._row(ask, run_id)
                if known is None or known.state == DRIVEN:
                    continue
                self._move(ask, known, None)
                for table in ("runs", "needs"):
                    ask(f"DELETE FROM {table} WHERE repository = ? AND run_id = ?", self._repository, run_id)
                gone += 1
        return gone

    def clear(self) -> None:
        """As `Queue` says."""
        with self._base.transaction() as ask:
            ask("DELETE FROM counts WHERE lane IN (SELECT name FROM lanes WHERE repository = ?)", self._repository)
            for table in ("runs", "needs", "lanes", "workers"):
                ask(f"DELETE FROM {table} WHERE repository = ?", self._repository)

    # ---- What people see.

    def find(self, name: str) -> list[Row]:
        """As `Queue` says."""
        beyond = f"{name}\U0010ffff"
        with self._base.transaction(writes=False) as ask:

            def those(column: str, condition: str, *values: str) -> list[Row]:  # each by its own index
                words = f"SELECT {_COLUMNS} FROM runs WHERE repository = ? AND {condition.format(column)} "
                found = ask(f"{words} ORDER BY {column} LIMIT 100", self._repository, *values)
                return [self._of(ask, one) for one in found]

            by_name = those("run_id", "{} = ?", name) + those("handle", "{} = ?", name)
            if not by_name:
                begins = "{0} >= ? AND {0} < ?"
                by_name = those("run_id", begins, name, beyond) + those("handle", begins, name, beyond)
        return sorted({one.run_id: one for one in by_name}.values())

    def rows(self, states: Sequence[str], most: int | None = None) -> list[Row]:
        """As `Queue` says."""
        found: list[Row] = []
        with self._base.transaction(writes=False) as ask:
            for state in states:
                left = None if most is None else most - len(found)
                if left == 0:
                    break
                if state == QUEUED:  # lane by lane, as the index has them
                    found += self._first(ask, left)
                    continue
                order = "not_before" if state == LATER else "since DESC" if state in (*OVER, FAILED) else "since"
                words = f"SELECT {_COLUMNS} FROM runs WHERE repository = ? AND state = ? ORDER BY {order}"
                words += "" if left is None else f" LIMIT {left}"
                found += [self._of(ask, one) for one in ask(words, self._repository, state)]
        return found

    def _first(self, ask: Ask, most: int | None) -> list[Row]:
        every = []
        for (lane,) in ask("SELECT name FROM lanes WHERE repository = ?", self._repository):
            every += ask(_QUEUED + ("" if most is None else f" LIMIT {most}"), lane)
        every.sort()
        return [self._of(ask, one[2:]) for one in every[:most]]

    def standings(self) -> list[Standing]:
        """As `Queue` says."""
        with self._base.transaction(writes=False) as ask:
            counts: dict[str, dict[str, int]] = {}
            for lane, state, number in ask(
                "SELECT lane, state, n FROM counts JOIN lanes ON lanes.name = counts.lane "
                "WHERE repository = ? AND n > 0",
                self._repository,
            ):
                counts.setdefault(lane, {})[state] = number
            lanes = ask(
                "SELECT name, repository, host, workflow, spent, paused FROM lanes WHERE repository = ? "
                "ORDER BY workflow, host",
                self._repository,
            )
        return [Standing(Lane(*one[1:4]), counts.get(one[0], {}), one[4], one[5]) for one in lanes]

    def holds(self) -> list[Hold]:
        """As `Queue` says."""
        with self._base.transaction(writes=False) as ask:
            now = self._base.now(ask)
            return [Hold(*one) for one in ask("SELECT host, until, why FROM hosts WHERE until > ? ORDER BY host", now)]

    def workers(self) -> list[Worker]:
        """As `Queue` says."""
        words = "SELECT id, machine, slots, signed FROM workers WHERE repository = ? ORDER BY signed DESC"
        with self._base.transaction(writes=False) as ask:
            return [Worker(*one) for one in ask(words, self._repository)]

    def alike(self, most: int) -> list[Alike]:
        """As `Queue` says."""
        with self._base.transaction(writes=False) as ask:
            groups = ask(
                "SELECT signature, COUNT(*) FROM runs WHERE repository = ? AND state = 'failed' GROUP BY signature "
                f"ORDER BY COUNT(*) DESC, signature LIMIT {most}",
                self._repository,
            )
            found = []
            words = (
                f"SELECT {_COLUMNS} FROM runs WHERE repository = ? AND state = 'failed' AND signature = ? "
                f"ORDER BY since DESC LIMIT {_A_FEW}"
            )
            for name, number in groups:
                rows = [self._of(ask, one) for one in ask(words, self._repository, name)]
                if rows:  # between two looks they may have gone
                    handles = tuple(one.handle for one in rows)
                    found.append(Alike(rows[0].lane.workflow, name, number, rows[0].why, handles))
        return found

    def clock(self) -> float:
        """As `Queue` says."""
        with self._base.transaction(writes=False) as ask:
            return self._base.now(ask)

    # ---- Rows.

    def _pick(self, ask: Ask, lanes: Iterable[str]) -> Row | None:
        """Pick the first of these lanes."""
        found = [one for lane in lanes for one in ask(f"{_QUEUED} LIMIT 1", lane)]
        return self._of(ask, min(found)[2:]) if found else None

    def _ready(self, ask: Ask, row: Row) -> Row:
        """Give a row that may be queued as it can be: behind others, before its time, or now."""
        if row.state not in (QUEUED, LATER, AFTER):
            return row
        lacking = [one for one in row.after if not self._is_done(ask, one)]
        state = AFTER if lacking else LATER if row.not_before > self._base.now(ask) else QUEUED
        return row._replace(state=state, after=tuple(lacking))

    def _is_done(self, ask: Ask, run_id: str) -> bool:
        known = self._row(ask, run_id)
        return known is not None and known.state == DONE

    def _write(self, ask: Ask, known: Row | None, row: Row) -> None:
        """Write a row in the place of another, and all that follows from it."""
        lane = row.lane.name
        if known is None or known.lane != row.lane:
            ask("INSERT INTO lanes VALUES (?, ?, ?, ?, '', '', 0, 0) ON CONFLICT (name) DO NOTHING", lane, *row.lane)
        more = json.dumps({key: value for key in _MORE if (value := getattr(row, key))})
        values = (
            self._repository, row.run_id, row.handle, lane, row.state, row.priority, time.time_ns(), row.not_before,
            row.since, row.revision, row.cost, _plain(row.signature), row.worker, row.attempt, row.asked,
            _plain(row.step), more,
        )  # fmt: skip
        words = (
            f"INSERT INTO runs VALUES ({', '.join('?' * len(values))}) ON CONFLICT (repository, run_id) DO UPDATE SET "
        )
        ask(words + _RENEWED, *values)
        self._move(ask, known, row)
        if row.after or (known is not None and known.after):
            self._note_needs(ask, row)
        if row.state == DONE and (known is None or known.state != DONE):
            self._release(ask, row)

    def _note_needs(self, ask: Ask, row: Row) -> None:
        ask("DELETE FROM needs WHERE repository = ? AND run_id = ?", self._repository, row.run_id)
        for one in dict.fromkeys(row.after):
            ask("INSERT INTO needs VALUES (?, ?, ?)", self._repository, row.run_id, one)

    def _release(self, ask: Ask, row: Row) -> None:
        """Let those go that waited for this run alone."""
        words = "SELECT run_id FROM needs WHERE repository = ? AND needed = ? ORDER BY run_id"
        for (run_id,) in ask(words, self._repository, row.run_id):
            known = self._row(ask, run_id)
            if known is not None:
                left = tuple(one for one in known.after if one != row.run_id)
                made = known._replace(after=left)
                self._write(ask, known, self._ready(ask, made) if known.state == AFTER else made)

    def _judge(self, ask: Ask, row: Row) -> None:
        """Count failures that are alike, one after the other; so many pause the lane."""
        lane = row.lane.name
        if row.state == DONE:
            ask("UPDATE lanes SET signature = '', alike = 0 WHERE name = ?", lane)
        if row.state != FAILED:
            return
        ((before, number, paused),) = ask("SELECT signature, alike, paused FROM lanes WHERE name = ?", lane)
        number = number + 1 if before == row.signature else 1
        if number >= IN_A_ROW and not paused:
            paused = f"{counted(number, 'run')} in a row failed alike: {row.why}"
        words = "UPDATE lanes SET signature = ?, alike = ?, paused = ? WHERE name = ?"
        ask(words, row.signature, number, paused, lane)

    def _due(self, ask: Ask, now: float) -> list[Row]:
        words = f"SELECT {_COLUMNS} FROM runs WHERE state = 'later' AND not_before <= ? AND repository = ? "
        return [self._of(ask, one) for one in ask(f"{words} LIMIT {_AT_ONCE}", now, self._repository)]

    def _let_due(self, ask: Ask, now: float) -> None:
        """Count what waited for a time that has come as queued."""
        for row in self._due(ask, now):
            ask("UPDATE runs SET state = 'queued' WHERE repository = ? AND run_id = ?", self._repository, row.run_id)
            self._move(ask, row, row._replace(state=QUEUED))

    def _open(self, ask: Ask, limits: Limits, now: float) -> list[str]:
        """Name the lanes of which a run may be given out."""
        driven: dict[str, int] = {}
        here = 0
        words = "SELECT host, repository, SUM(n) FROM counts JOIN lanes ON lanes.name = counts.lane "
        words += "WHERE state = 'driven' AND n > 0 GROUP BY host, repository"
        for host, repository, number in ask(words):
            driven[host] = driven.get(host, 0) + int(number)
            here += int(number) if repository == self._repository else 0
        if _full(sum(driven.values()), limits.fleet) or _full(here, limits.here):
            return []
        if limits.cost is not None and self._spent(ask) >= limits.cost:
            return []
        words = (
            "SELECT name, host FROM lanes JOIN counts ON counts.lane = lanes.name AND state = 'queued' AND n > 0 "
            "WHERE repository = ? AND paused = '' AND host NOT IN (SELECT host FROM hosts WHERE until > ?)"
        )
        found = ask(words, self._repository, now)
        return [name for name, host in found if not _full(driven.get(host, 0), limits.of_host(host))]

    def _spent(self, ask: Ask) -> float:
        ((spent,),) = ask("SELECT COALESCE(SUM(spent), 0) FROM lanes WHERE repository = ?", self._repository)
        return float(spent)

    def _move(self, ask: Ask, known: Row | None, row: Row | None) -> None:
        """Count a row where it stands now, and no more where it stood, with its cost."""
        counts: dict[tuple[str, str], int] = {}
        costs: dict[Lane, float] = {}
        for one, by in ((known, -1), (row, 1)):
            if one is not None:
                at = (one.lane.name, one.state)
                counts[at] = counts.get(at, 0) + by
                costs[one.lane] = costs.get(one.lane, 0.0) + by * one.cost
        changed = [(*at, by) for at, by in sorted(counts.items()) if by]
        if changed:
            words = f"INSERT INTO counts VALUES {', '.join(['(?, ?, ?)'] * len(changed))} "
            words += "ON CONFLICT (lane, state) DO UPDATE SET n = counts.n + excluded.n"
            ask(words, *[value for one in changed for value in one])
        for lane, by_cost in costs.items():
            self._spend(ask, lane, by_cost)

    def _spend(self, ask: Ask, lane: Lane, by: float) -> None:
        if by:
            ask("UPDATE lanes SET spent = spent + ? WHERE name = ?", by, lane.name)

    def _row(self, ask: Ask, run_id: str) -> Row | None:
        words = f"SELECT {_COLUMNS} FROM runs WHERE repository = ? AND run_id = ?"
        found = ask(words, self._repository, run_id)
        return self._of(ask, found[0]) if found else None

    def _of(self, ask: Ask, one: Iterable[Any]) -> Row:
        values = dict(zip(_COLUMNS.split(", "), one, strict=True))
        name = values.pop("lane")
        if name not in self._lanes:
            words = "SELECT repository, host, workflow FROM lanes WHERE name = ?"
            self._lanes[name] = Lane(*ask(words, name)[0])
        more = json.loads(values.pop("more"))
        more["after"] = tuple(more.get("after", ()))
        values["goal"] = more.pop("goal", "")
        return Row(lane=self._lanes[name], **values, **more)


def _plain(text: str) -> str:
    """Give a text as a database takes it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _same(known: Row, row: Row) -> bool:
    """Tell whether an offer says what is known."""

    def bare(one: Row) -> Row:
        return one._replace(since=0.0, worker="", machine="", attempt=0, asked="")

    return bare(known) == bare(row)


def _full(number: int, most: int | None) -> bool:
    return most is not None and number >= most
