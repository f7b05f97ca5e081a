"""What tools print is told by the lines that matter, whatever shape a tool gives them; the outputs are made up."""

from __future__ import annotations

import json

from loomctl.reduction.calls import reduce_call
from loomctl.reduction.trouble import Rooms, trouble
from tests.helpers.tables import each

GO = """\
--- FAIL: TestTotal (0.00s)
    --- FAIL: TestTotal/with_tax (0.00s)
        cart_test.go:23: got 10, want 12
FAIL	example.com/shop/cart	0.008s
FAIL
"""
CARGO = """\
   Compiling libc v0.2.150
   Compiling shop v0.1.0 (/repo)
error[E0308]: mismatched types
  --> src/cart.rs:42:17
   |
42 |         self.items.iter().map(|i| i.price).sum::<f64>()
   |         ^^^^^^^^^^^^^^^^^^^^^^^ expected `u64`, found `f64`
"""
ESLINT = """

/repo/src/cart.js
   3:10  error    'total' is defined but never used  no-unused-vars

/repo/src/api.js
  1:1   error  Parsing error: Unexpected token <

✖ 2 problems (2 errors, 0 warnings)
"""
DOCKER = """\
#8 [4/5] RUN pip install -r requirements.txt
#8 1.402 ERROR: No matching distribution found for flask==9.9.9
#9 [5/5] COPY . .
"""
JEST = """\
  ● Cart \u203a totals \u203a adds tax

    expect(received).toBe(expected) // Object.is equality

    Expected: 12
    Received: 10
"""
PYTHON = """\
Traceback (most recent call last):
  File "/repo/app.py", line 10, in <module>
    main()
  File "/repo/app.py", line 6, in main
    fetch()
  File "/repo/shop/prices.py", line 22, in fetch
    return session.get(url)
  File "/venv/lib/python3.11/site-packages/requests/sessions.py", line 600, in get
    return self.request("GET", url)
           ^^^^^^^^^^^^^^^^^^^^^^^^
requests.exceptions.ConnectionError: no route
"""
NODE = """\
node:internal/modules/cjs/loader:1080
  throw err;
  ^

Error: Cannot find module './db'
    at Module._load (node:internal/modules/cjs/loader:922:27)
    at Object.<anonymous> (/repo/server.js:3:12)
[Error: ENOENT: no such file or directory, open 'prices.csv'] {
  errno: -2,
}
"""
RSPEC = """\
Failures:

  1) Cart#total adds tax
     Failure/Error: expect(cart.total(0.2)).to eq(12)

Failed examples:

rspec ./spec/cart_spec.rb:8 # Cart#total adds tax
"""
PODS = "NAME   READY   STATUS   RESTARTS   AGE\n" + "".join(f"web-{n}   1/1   Running   0   3d\n" for n in range(40))
PODS += "worker-7f9c   0/1   CrashLoopBackOff   47 (2m ago)   3d\ndb-0   0/1   OOMKilled   1   3d\n"
UNIT = """\
● nginx.service - A high performance web server
     Loaded: loaded (/lib/systemd/system/nginx.service; enabled)
     Active: failed (Result: exit-code) since Tue 2026-03-03
"""
LIST = json.dumps([{"id": n, "status": "failed" if n == 3 else "ok", "error": None} for n in range(9)], indent=2)
CURL = "* Could not resolve host: api.example.org\n> GET / HTTP/2\n< HTTP/2 401 \n< content-type: text/html\n"
FLAKE = """\
isort....................................................................Passed
flake8...................................................................Failed
- exit code: 1

shop/cart.py:333:13: F841 local variable 'repo' is assigned to but never used
repo = Repo(io, None)

shop/cart.py:
217│class TestCart(TestCase):
333│        with patch("shop.Error") as failed:
"""
RAISED = """\
Traceback (most recent call last):
  File "/repo/resolve.py", line 316, in back
    raise Impossible(causes)
shop.resolve.ResolutionImpossible: [Requirement('tokens<0.20')]
backoff==2.2.1
"""
PYTEST = """\
    def test_switch(self):
>       self.commands.ask()
E       shop.commands.SwitchCoder

shop/commands.py:869: SwitchCoder
"""

TOLD = [
    (FLAKE, ["shop/cart.py:333:13: F841 local variable 'repo'"], ["TestCart", "shop.Error"]),
    (RAISED, ["shop.resolve.ResolutionImpossible: [Requirement('tokens<0.20')]"], ["backoff"]),
    (PYTEST, ["E       shop.commands.SwitchCoder", "shop/commands.py:869: SwitchCoder"], []),
    (GO, ["cart_test.go:23: got 10, want 12", "FAIL\texample.com/shop/cart"], []),
    (CARGO, ["error[E0308]: mismatched types", "--> src/cart.rs:42:17", "expected `u64`, found `f64`"], ["Compiling"]),
    (ESLINT, ["/repo/src/cart.js:3:10  error    'total' is", "/repo/src/api.js:1:1   error  Parsing error"], []),
    (DOCKER, ["#8 1.402 ERROR: No matching distribution found for flask==9.9.9"], []),
    (JEST, ["● Cart \u203a totals \u203a adds tax", "Expected: 12", "Received: 10"], []),
    (
        PYTHON,
        ["/repo/shop/prices.py", "session.get(url)", "sessions.py", "ConnectionError: no route"],
        ["main()", "^^^"],
    ),
    (NODE, ["Cannot find module './db'", "/repo/server.js:3:12", "open 'prices.csv'"], ["cjs/loader:922", "\n^"]),
    (RSPEC, ["expect(cart.total(0.2))", "rspec ./spec/cart_spec.rb:8 # Cart#total adds tax"], ["Failures:"]),
    (PODS, ["worker-7f9c   0/1   CrashLoopBackOff", "db-0   0/1   OOMKilled"], ["web-7 "]),
    (UNIT, ["Active: failed (Result: exit-code)"], []),
    (LIST, ['"status": "failed"'], ["null"]),
    (CURL, ["Could not resolve host: api.example.org", "HTTP/2 401"], []),
]


@each(("output", "told", "not_told"), TOLD)
def test_lines_of_trouble_are_told_and_what_stands_around_them_is_not(
    output: str, told: list[str], not_told: list[str]
) -> None:
    lines = "\n".join(["", *trouble(output, Rooms(1000, 1000, 100))])
    assert [text for text in told if text not in lines] == []
    assert [text for text in not_told if text in lines] == []


@each(
    "line",
    [
        '"error": null,', "https://example.com/errors/failed.html", "ok=3 unreachable=0 failed=0", "errors: []",
        "error=None", "0 errors", "def fail(error):",
    ],
)  # fmt: skip
def test_a_line_that_says_that_there_is_no_trouble_is_none(line: str) -> None:
    assert trouble(f"{line}\n", Rooms(1000, 1000, 100), failed=False) == []


def test_a_long_line_is_cut_around_its_trouble() -> None:
    line = json.dumps({"items": [{"id": n, "name": f"item {n}"} for n in range(400)], "state": "connection refused"})
    (told,) = trouble(line, Rooms(1000, 1000, 1000))
    assert "connection refused" in told
    assert len(told) < 260


STATUS = """\
On branch feature/tax
Your branch is ahead of 'origin/feature/tax' by 2 commits.

Changes to be committed:
\tmodified:   src/cart.py
\trenamed:    old name.py -> new.py

Changes not staged for commit:
\tdeleted:    Makefile

Untracked files:
\tnotes/

no changes added to commit (use "git add" and/or "git commit -a"), or leave it as it is and go on
"""
LONG = "total 8\n" + "".join(f"-rw-r--r-- 1 ann staff  {n}K Mar  3 10:00 part {n}.csv\n" for n in range(9))
LONG += "drwxr-xr-x 2 ann staff 4096 Mar  3 10:00 src\nlrwxrwxrwx 1 ann staff 7 Mar 3 10:00 now -> v2\n"
DIFF = (
    "diff --git a/a b.md b/a b.md\nindex 1111111..2222222 100644\n--- a/a b.md\n+++ b/a b.md\n@@ -1 +1 @@\n-old\n"
    + ("+new words in this line\n" * 30)
)


@each(
    ("command", "output", "below"),
    [
        ("git status", STATUS, "On branch feature/tax\nin: src/cart.py old name.py -> new.py Makefile notes/"),
        (
            "ls",
            "".join(f"part{one}.csv\nshed{one}\n" for one in "abcdefgh") + "READ.me\n",
            "in: parta.csv sheda partb.csv",
        ),
        ("ls -l", LONG, "in: part {0..8}.csv src/ now"),
        ("git diff", DIFF, "a b.md +30 -1 @1\n  -old\n"),
    ],
)
def test_what_lists_files_is_told_by_its_files(command: str, output: str, below: str) -> None:
    told = reduce_call("Bash", {"command": command}, {"stdout": output, "stderr": ""}).observation
    assert below in told
    assert "2222222" not in told


def test_neither_addresses_of_mail_nor_attributes_are_files() -> None:
    """They would take the place of those; `self.io` is a name of a program's own."""
    output = "".join(f"{n} user{n}@example.com\n" for n in range(60)) + "icon@2x.png src/a.py\n"
    told = reduce_call("Bash", {"command": "psql"}, {"stdout": output, "stderr": ""}).observation
    assert [line for line in told.split("\n") if line.startswith("in: ") and "@example.com" in line] == []
    assert "src/a.py" in told
    output = "self.help(self.io, cls.kind) in src/a.py\n" * 30 + "That is all.\n"
    told = reduce_call("Bash", {"command": "cat"}, {"stdout": output, "stderr": ""}).observation
    assert "src/a.py" in told
    assert [line for line in told.split("\n") if line.startswith("in: ") and "self.io" in line] == []


def test_names_in_json_come_from_its_values_before_its_keys() -> None:
    rows = [{"node_id": n, "avatar_url": "x", "body": f"Fix\n\tcartTotal in LOOM-{n}\nfor CartKind"} for n in range(30)]
    told = reduce_call("Bash", {"command": "gh api x"}, {"stdout": json.dumps(rows), "stderr": ""}).observation
    names = told.rpartition("names: ")[2].split()
    assert [name for name in ("cartTotal", "CartKind", "LOOM-{0..29}") if name not in told] == []
    assert [name for name in names if name.startswith(("tcart", "nfor"))] == []


REFUSED = """\
The block could not be placed.
https://example.com/help/errors.html
# 1 block failed to match!

## NoMatch: these lines are not in src/cart.py, as they must be
<<<<<<< SEARCH
if error is None:
    raise MissingPrice
# an error of the old form
=======
"""


def test_a_failed_edit_says_what_went_wrong_first_and_quotes_nothing_of_the_edit() -> None:
    given = {"file_path": "src/cart.py", "old_string": REFUSED.partition("SEARCH\n")[2], "new_string": "pass"}
    told = reduce_call("Edit", given, None, error=REFUSED + "padding " * 90).observation
    for words in ("could not be placed", "# 1 block failed to match!", "## NoMatch: these lines are not in"):
        assert words in told
    for words in ("MissingPrice", "errors.html", "of the old form", "names:"):
        assert words not in told
