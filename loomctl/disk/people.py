"""Who sits at this machine, as far as a decision is to bear a name."""

from __future__ import annotations

import os
import re

from loomctl.disk import git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.disk.git_refs import Repository

_PATIENCE = 2.0  # seconds that git may take
_IDENTITY = re.compile(r"([^<>\n]+) <([^<>\n]+)> ")


def user_name(folder: str) -> str:
    """Give the name of the person: as git calls the author of what is done in `folder`, else the login name.

    The login name is the account's own, not what an environment variable says of it.
    """
    asked = ("config", "user.name")
    said = git.output(asked, folder, patience=_PATIENCE) or git.said(*asked, patience=_PATIENCE)
    name = said.decode("utf-8", "replace").strip() if said else ""
    return name or _login()


def committer(repository: Repository) -> tuple[str, str] | None:
    """Give name and address of whom git would have a commit be by: what the environment says, else the settings.

    None where neither tells of both; what git makes up of the account and the machine is nobody's.
    """
    for who in ("GIT_COMMITTER_IDENT", "GIT_AUTHOR_IDENT"):
        done = repository.run("-c", "user.useConfigOnly=true", "var", who)
        said = _IDENTITY.match(done.out.decode("utf-8", "replace")) if done.code == 0 else None
        name, mail = ("".join(filter(str.isprintable, part)).strip() for part in said.groups()) if said else ("", "")
        if name and mail:
            return name, mail
    return None


def _login() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container whose user has no name
        return f"user {os.getuid()}"
