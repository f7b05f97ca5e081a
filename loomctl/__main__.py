"""Where `loomctl` begins: hooks go past click, whose usage error would tell a host to block."""

import os
import sys


def main() -> int:
    """Run the command line; gives the exit code."""
    _open_what_is_closed()
    arguments = sys.argv[1:]
    if arguments[:2] == ["hook", "post-tool-use"] and len(arguments) in (3, 4):  # every module counts here
        try:
            from loomctl.hosts.protocol.live import main as replace

            return replace(*arguments[2:])
        except ImportError:
            return 0
    if arguments[:1] == ["hook"]:
        try:
            from loomctl.hosts.protocol.hooks import main as answer

            return answer(arguments[1:])
        except ImportError as error:  # the plugin is being replaced, or is not whole: no hook fails for it (D55)
            return _without_package(arguments[1:], str(error))
    if arguments == ["expressions"]:
        from loomctl.expressions.engine import child_main

        return child_main()
    if arguments == ["supervise"]:
        from loomctl.runs.supervisor import main as supervise

        return supervise()
    if arguments[:1] == ["settings"] and len(arguments) == 2:
        from loomctl.runs.config import load

        load(arguments[1], with_yaml=True)
        return 0
    if arguments == ["statusline"] and sys.flags.no_site:  # the launcher found no line that it could print itself
        from loomctl.hosts.protocol.hooks import status_line as draw

        return draw()
    if arguments in (["doctor"], ["doctor", "--json"]):  # it speaks where nothing but Python is well
        from loomctl.cli.doctor import main as examine

        return examine(as_json=len(arguments) == 2)
    try:
        from loomctl.cli.main import main as command_line
    except ImportError as error:  # an environment that lost a package
        from loomctl.cli.output import refuse_to_start

        return refuse_to_start(error, arguments)
    return command_line(arguments)


def _open_what_is_closed() -> None:
    """Give a process that was started without one of its three streams an empty one.

    Python has None in its place, and the next file that is opened would get its number: what somebody prints would go
    into a run's state.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open to the end


def _without_package(arguments: list[str], why: str) -> int:
    if arguments[:1] == ["session-start"]:
        import json

        told = f"Loom: its plugin is not whole ({why}), so nothing is restored; after an update start the session again"
        print(json.dumps({"systemMessage": told}))
    return 0


def _hook() -> None:
    """Run a hook and end the process, sparing it collections of garbage while it works and at its end."""
    import gc

    gc.disable()
    code = main()
    try:
        sys.stdout.flush()
    except OSError:  # the host went away
        pass
    os._exit(code)


if __name__ == "__main__":
    here = __file__.rsplit("/", 2)[0]
    if here not in sys.path:
        sys.path.insert(0, here)
    if sys.argv[1:2] == ["hook"]:
        _hook()
    sys.exit(main())
