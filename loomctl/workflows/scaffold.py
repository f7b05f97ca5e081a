"""The text of a workflow that a person begins with: a bundled one extended, with the rest in comments. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = "workflow.schema.json"  # beside the folder of workflows


def text(name: str, base: str, phases: Mapping[str, Sequence[str]]) -> str:
    """Give a workflow in YAML that does what `base` does, until somebody takes out a comment sign.

    phases: of base, each with the ids of its steps.
    """
    ways = "\n".join(f"# - {phase}: {', '.join(steps)}" for phase, steps in phases.items())
    own = "build" if "build" in phases else next(iter(phases), "build")
    return f"""\
# yaml-language-server: $schema=../{SCHEMA}
# Loom's {base}, and what you add here. To use it: loomctl run "add dark mode" --workflow {name}
# To see what is wrong with it: loomctl check {name}. To see its steps: loomctl graph {name}
id: {name}
extends: loom:{base}

# The steps of {base}, phase by phase:
{ways}

# A step of your own at the end of a phase; pre_steps puts it at the beginning. The step is done when Loom has seen
# the evidence. `steps` in place of post_steps replaces the steps of the phase.
#
#phases:
#  {own}:
#    post_steps:
#      - id: lint
#        prompt: Run the linters and fix what they find.
#        evidence:
#          - {{run: "ruff check ."}}

# Files that come back after every compaction:
#
#critical_artifacts:
#  always_load:
#    - id: conventions
#      type: markdown
#      path: CONTRIBUTING.md
#      description: How code is written here
#      required: true
#      reload_triggers: [session_start]

# What a compaction must not lose, beside the goal and the step; `loomctl prove` shows what became of it:
#
#must_survive:
#  - Public interfaces stay as they are

# When you decide: assist asks before each phase, guarded and autonomous before what is named:
#
#autonomy:
#  level: guarded
#  require_approval_for: [{(list(phases) or ["release"])[-1]}]

# Steps of the workflow above that you do not want:
#
#skip_steps: [{own}/{next(iter(phases.get(own, ())), "implement")}]
"""
