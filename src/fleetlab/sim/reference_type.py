"""Bundles of tables, passed to compiled functions by reference.

A NamedTuple is passed as its parts: one of sixty arrays is some four hundred arguments of every function that takes
it, and most of the time of a compilation goes into handing them on. `by_reference` stores a bundle once, in the frame
of the function that calls it, and gives its address; the fields of a reference read like those of the bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

T = TypeVar("T")
config: Any = numba.config


class Reference(types.Type):
    """The address of a NamedTuple, whose parts do not change."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401
        self.target = target
        super().__init__(name=f"Reference({target})")

    def field(self, name: str) -> tuple[int, Any]:
        """Return the place and the type of a field; a bundle within a bundle is a reference too."""
        place = self.target.fields.index(name)
        kind = self.target.types[place]
        return place, Reference(kind) if isinstance(kind, types.BaseNamedTuple) else kind


register_model(Reference)(models.OpaqueModel)


@infer_getattr
class ReferenceFields(AttributeTemplate):
    """What the fields of a reference are."""

    key = Reference

    def generic_resolve(self, value: Reference, attr: str) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return the type of a field, None: there is none of that name."""
        return value.field(attr)[1] if attr in value.target.fields else None


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def load_field(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:  # noqa: ANN401
    """Load a field from the stored bundle."""
    place, kind = reference.field(name)
    stored = builder.bitcast(address, context.get_value_type(reference.target).as_pointer())
    field = cgutils.gep_inbounds(builder, stored, 0, place)
    if isinstance(kind, Reference):
        return builder.bitcast(field, cgutils.voidptr_t)
    return impl_ret_borrowed(context, builder, kind, builder.load(field))


def _store(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401
    """Store the argument in the caller's frame and return its address."""
    return builder.bitcast(cgutils.alloca_once_value(builder, args[0]), cgutils.voidptr_t)


def _typed(context: Any, bundle: Any) -> Any:  # noqa: ANN401  numba calls it with the types of the arguments
    return Reference(bundle)(bundle), _store


def _itself(bundle: T) -> T:
    """Return the bundle: what plain Python passes is a reference."""
    return bundle


_compiled: Any = intrinsic(_typed)
by_reference: Callable[[T], T] = _itself if config.DISABLE_JIT else _compiled
