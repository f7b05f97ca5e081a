"""`NamedTuple` as `typing` has it, for modules that hooks import: `typing` alone costs a hook 8 ms.

Type checkers see typing's own. At run time the classes are tuples with the methods, properties and defaults of their
body; annotations are kept as text and never evaluated. `collections.namedtuple` would compile a constructor for each:
a tenth of a session start's time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - that is how it is given on
else:
    from _collections import _tuplegetter

    _new_tuple = tuple.__new__

    def _constructor(name, fields, defaults):
        count = len(fields)

        def __new__(cls, *values, **named):
            if len(values) != count or named:
                if len(values) > count:
                    raise TypeError(f"{name} takes {count} values, and {len(values)} were given")
                try:
                    values += tuple(
                        named.pop(field) if field in named else defaults[field] for field in fields[len(values) :]
                    )
                except KeyError as error:
                    raise TypeError(f"{name} needs a value for {error.args[0]!r}") from None
                if named:
                    raise TypeError(f"{name} takes no second or other value named {', '.join(named)}")
            return _new_tuple(cls, values)

        return __new__

    def _make(cls, values):
        return cls(*values)

    def _replace(self, **named):
        made = _new_tuple(type(self), map(named.pop, self._fields, self))
        if named:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(named)}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self):
        values = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({values})"

    def __getnewargs__(self):
        return tuple(self)

    class _Maker(type):
        def __new__(cls, name, bases, body):  # noqa: ARG004 - type's
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in fields if field in body}
            own = {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
                "__new__": _constructor(name, fields, defaults),
                "_make": classmethod(_make),
                "_replace": _replace,
                "_asdict": _asdict,
                "__repr__": __repr__,
                "__getnewargs__": __getnewargs__,
            }
            own |= {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            return type(name, (tuple,), {**own, **body})

    class _Base:
        """What a class statement finds instead of a base class."""

        def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
            return (_PLACE,)

    _PLACE = type.__new__(_Maker, "NamedTuple", (), {})
    NamedTuple = _Base()
