"""Where `loomctl` begins: hooks go past click, whose usage error would tell a host to block (design §3)."""

import sys


def main() -> int:
    """Run the command line; gives the exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"]:
        from loomctl.hosts.claude_code import main as answer

        return answer(arguments[1:])
    if arguments == ["expressions"]:
        from loomctl.disk.expressions import child_main

        return child_main()
    if arguments[:1] == ["settings"] and len(arguments) == 2:
        from loomctl.disk.config import load

        load(arguments[1], with_yaml=True)
        return 0
    if arguments in (["doctor"], ["doctor", "--json"]):  # it speaks where nothing but Python is well
        from loomctl.cli.diagnosis import main as examine

        return examine(as_json=len(arguments) == 2)
    from loomctl.cli.main import main as command_line

    return command_line(arguments)


if __name__ == "__main__":
    here = __file__.rsplit("/", 2)[0]
    if here not in sys.path:
        sys.path.insert(0, here)
    sys.exit(main())
