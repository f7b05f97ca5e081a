"""`loomctl debug blob get`: a blob's bytes as they are, its text, or what is known of it."""

import json
import subprocess
import sys
from pathlib import Path

from loomctl.runs.store.blobs import Blobs, ref_of
from tests.cli.conftest import Cli
from tests.helpers.scenes import MAIN, Scene


def put(scene: Scene, data: bytes) -> str:
    return Blobs(str(scene.store)).put(data)


CONTENTS = [b"", b'"text\\n"', b'{"a": 1}', bytes(range(256)), b"\r\n\x1b[31m", b'"ghp_' + b"a1B2" * 9 + b'"']


def test_the_bytes_go_out_as_they_are(begun: Scene) -> None:
    """Nothing added, nothing masked, nothing made visible, in a process of its own from a folder of the project."""
    for data in CONTENTS:
        ref = put(begun, data)
        (begun.root / "deep").mkdir(exist_ok=True)
        target = begun.root / "deep" / "out"
        target.unlink(missing_ok=True)
        assert begun.loomctl("debug", "blob", "get", ref, "--out", "out", cwd=begun.root / "deep").code == 0
        assert target.read_bytes() == data
        assert target.stat().st_mode & 0o777 == 0o600
        done = subprocess.run(
            [sys.executable, "-I", str(MAIN), "blob", "get", ref], cwd=begun.root, env=begun.environ(),
            stdin=subprocess.DEVNULL, capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout == data


def test_a_blobs_text_or_what_is_known_of_it_is_given_and_no_file_written_over(begun: Scene, cli: Cli) -> None:
    """`--text` takes the JSON around it off; of what is no text it says so."""
    ref = put(begun, json.dumps("one\ntwo é\n", ensure_ascii=False).encode())
    assert cli("debug", "blob", "get", ref, "--text").stdout == "one\ntwo é\n"
    assert cli("debug", "blob", "get", ref).stdout == '"one\\ntwo é\\n"'
    for data, kind in ((b"[1]", "array"), (b"\xff", "bytes"), (b"true", "boolean"), (b"7", "number")):
        ended = cli("debug", "blob", "get", put(begun, data), "--text", "--json")
        assert (ended.code, ended.json["error"]["code"]) == (2, "NO_TEXT")
        assert kind in ended.json["error"]["message"]
    data = b'{"a": 1}'
    ref = put(begun, data)
    told = cli("debug", "blob", "get", ref, "--json").json
    assert told == {
        "schema_version": 1, "ref": ref, "sha256": ref[14:], "bytes": 8, "value": "object",
        "path": Blobs(str(begun.store)).path(ref),
    }  # fmt: skip
    assert Path(told["path"]).read_bytes() == data
    ref = put(begun, b"1")
    (begun.root / "there").write_text("mine")
    (begun.root / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        ended = cli("debug", "blob", "get", ref, "--out", name, "--json")
        assert (ended.code, ended.json["error"]["code"]) == (2, "FILE_EXISTS")
        assert ended.json["error"]["hint"] == f"loomctl debug blob get {ref} --out {begun.root}/{name}.new"
    assert (begun.root / "there").read_text() == "mine"
    assert not (begun.root / "nowhere").exists()


def test_what_cannot_be_given_is_said(begun: Scene, cli: Cli) -> None:
    for ref, code, exit_code in [
        ("x", "BAD_REF", 2),
        (f"blob://sha256/{'A' * 64}", "BAD_REF", 2),
        (f"blob://sha256/{'a' * 64}", "NO_SUCH_BLOB", 3),
        (ref_of(b"damaged"), "DAMAGED_BLOB", 5),
    ]:
        Path(Blobs(str(begun.store)).path(put(begun, b"damaged"))).write_bytes(b"rubbish")
        ended = cli("debug", "blob", "get", ref)
        assert (ended.code, ended.stdout) == (exit_code, "")
        assert f"loomctl: {code}: " in ended.stderr
        assert "hint: " in ended.stderr
