"""The page of assistants says of each promise what the tests against the real assistants prove."""

from loomctl.hosts import asking, table
from tests.docs.pages import DOCS, hold
from tests.docs.pages import table as drawn
from tests.e2e.promises import PROMISES
from tests.e2e.test_promises import CLIENTS
from tests.helpers.scenes import CHECKOUT

PAGE = DOCS / "reference" / "assistants.md"


def test_the_page_says_what_holds_where() -> None:
    """A no has its reason below the table; `tests/e2e/test_promises.py` plays each scene, and expects just this."""
    hosts = list(table.HOSTS.values())
    reasons: list[str] = []
    rows = [[promise, *(_cell(host, promise, reasons) for host in hosts)] for promise in PROMISES]
    notes = "\n".join(f"{at}. {reason}" for at, reason in enumerate(reasons, 1))
    hold(PAGE, "promises", drawn(["promise", *(host.title for host in hosts)], rows) + f"\n\nWhy not:\n\n{notes}")


def test_the_readme_counts_them() -> None:
    hosts = list(table.HOSTS.values())
    counted = [f"{len(PROMISES) - len(host.cannot)} of {len(PROMISES)}" for host in hosts]
    hold(CHECKOUT / "README.md", "assistants", drawn([host.title for host in hosts], [counted]))


def _cell(host: asking.Host, promise: str, reasons: list[str]) -> str:
    reason = dict(host.cannot).get(promise)
    if reason is None:
        return "yes"
    said = f"{host.title}: {reason}."
    if said not in reasons:
        reasons.append(said)
    return f"no ({reasons.index(said) + 1})"


def test_each_assistant_of_the_page_is_asked() -> None:
    assert {client.host for client in CLIENTS} == set(table.HOSTS)


def test_no_reason_is_given_for_what_is_no_promise() -> None:
    assert {promise for host in table.HOSTS.values() for promise, _ in host.cannot} <= set(PROMISES)
