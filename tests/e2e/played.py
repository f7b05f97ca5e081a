"""Scenes that several tests begin with: each is played once, and every test comes back to the machine at its end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, cast

from tests.e2e.assistant import Assistant, Machine
from tests.e2e.clients.client import is_made_alike, wait_until
from tests.e2e.scripted_api import ScriptedApi

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Played:
    """What was played in a run of tests. folder: for the machines, one for each scene."""

    folder: Path
    binary: str
    bundle: Path
    cache: Path
    _scenes: dict[str, tuple[Assistant, object]] = field(default_factory=dict)

    def after(self, scene: Callable[[Assistant], Kind], api: ScriptedApi) -> tuple[Assistant, Kind]:
        """Give the assistant as it was at the end of a scene, and what the scene gave. api: of what follows.

        All is at the same paths each time, with the same files and their times.
        """
        name = f"{scene.__module__}.{scene.__qualname__}"
        place, kept = self.folder / name, self.folder / f"{name}.kept"
        if name not in self._scenes:
            shutil.rmtree(place, ignore_errors=True)
            machine = Machine(root=place, cache=self.cache)
            assistant = Assistant(
                binary=self.binary, machine=machine, project=machine.project(), api=api, plugin_dir=self.bundle
            )
            given = scene(assistant)
            shutil.copytree(place, kept, symlinks=True)
            self._scenes[name] = assistant, given
        # What was killed in the test before may still write.
        wait_until(lambda: is_made_alike(place, kept), "the machine is as it was")
        assistant, then = self._scenes[name]
        return replace(assistant, api=api), cast("Kind", then)
