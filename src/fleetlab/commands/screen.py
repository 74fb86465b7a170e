"""What commands print with, and check before they work: imported on first use, so that help needs no data frames."""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab._screen import Rows as Rows
    from fleetlab._screen import cell as cell
    from fleetlab._screen import print_everything as print_everything
    from fleetlab._screen import progress as progress
    from fleetlab._screen import prose as prose
    from fleetlab._screen import show as show
    from fleetlab._screen import table as table
    from fleetlab.core.files import atomic_write as atomic_write
    from fleetlab.core.files import may_create as may_create
    from fleetlab.core.files import may_write as may_write
    from fleetlab.core.trace import may_hold as may_hold

lazy(__name__)
