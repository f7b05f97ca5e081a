"""A group that is a listing by itself: `loomctl steps [RUN]` beside `loomctl steps show ID`."""

from __future__ import annotations

import click


class Listing(click.Group):
    """A listing with arguments of its own; where its first word is a sub-command, that is meant."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words for the sub-command's, which comes first then, or for the listing's."""
        at = self._at(args)
        if at is None:
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = False
        ctx.meta[__name__] = args[at]
        return super().parse_args(ctx, [args[at], *args[:at], *args[at + 1 :]])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Give the listing's own, which a sub-command's words are not read by."""
        found = super().get_params(ctx)
        return [one for one in found if one.name == "help"] if __name__ in ctx.meta else found

    def _at(self, args: list[str]) -> int | None:
        valued = {name for one in self.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            at += 2 if args[at] in valued else 1
        return at if at < len(args) and args[at] in self.commands else None
