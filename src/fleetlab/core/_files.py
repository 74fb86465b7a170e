"""The former name of `files`."""

from fleetlab.core.files import atomic_write as replace
from fleetlab.core.files import may_write

__all__ = ["may_write", "replace"]
