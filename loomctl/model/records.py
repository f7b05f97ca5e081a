"""`NamedTuple` as `typing` has it, for modules that hooks import: `typing` alone costs a hook 8 ms.

Type checkers see typing's own. At run time the classes are what `collections.namedtuple` makes, with the methods,
properties and defaults of their body; their annotations are kept as text and never evaluated.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - that is how it is given on
else:
    from collections import namedtuple

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:  # noqa: ARG004 - type's
            annotations = body.pop("__annotations__", {})
            defaults = [body.pop(field) for field in annotations if field in body]
            made = namedtuple(name, annotations, defaults=defaults, module=body.pop("__module__"))  # noqa: PYI024
            for key, value in {**body, "__annotations__": annotations}.items():
                setattr(made, key, value)
            return made

    class _Base:
        """What a class statement finds instead of a base class."""

        def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
            return (_PLACE,)

    _PLACE = type.__new__(_Maker, "NamedTuple", (), {})
    NamedTuple = _Base()
