"""A small MCP server on standard input and output: a tool each for much text, much beside an image, and a failure."""

import json
import sys
from typing import Any

ROWS = "\n".join(f"row {number}: shop {number % 7} sold {number * 13} things" for number in range(1, 601))
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answer(message: dict[str, Any]) -> dict[str, Any]:
    rows = {"type": "text", "text": ROWS}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "shop", "version": "1"},
        }
    if message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"shop": {"type": "string"}}}
        return {
            "tools": [{"name": name, "description": name, "inputSchema": schema} for name in ("rows", "seen", "broken")]
        }
    if message["method"] == "tools/call":
        image = {"type": "image", "mimeType": "image/png", "data": DOT}
        broken = [{"type": "text", "text": f"Error: the shop is closed\n{ROWS}"}]
        results: dict[str, dict[str, Any]] = {
            "rows": {"content": [rows]},
            "seen": {"content": [image, rows]},
            "broken": {"content": broken, "isError": True},
        }
        return results[message["params"]["name"]]
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked)}) + "\n")
            sys.stdout.flush()
