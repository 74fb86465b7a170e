"""The simulator: what would have happened, under which policy; and own policies.

Each name is imported when first asked for: nothing is compiled before somebody simulates.
"""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.sim.check import check_order as check_order
    from fleetlab.sim.check import check_placement as check_placement
    from fleetlab.sim.kernel.view import Migrate as Migrate
    from fleetlab.sim.kernel.view import Preempt as Preempt
    from fleetlab.sim.kernel.view import Reserve as Reserve
    from fleetlab.sim.kernel.view import Resize as Resize
    from fleetlab.sim.kernel.view import Start as Start
    from fleetlab.sim.kernel.view import View as View
    from fleetlab.sim.kernel.view import WakeAt as WakeAt
    from fleetlab.sim.packing import Packing as Packing
    from fleetlab.sim.packing import pack as pack
    from fleetlab.sim.policy import State as State
    from fleetlab.sim.policy import order as order
    from fleetlab.sim.policy import placement as placement
    from fleetlab.sim.result import SimResult as SimResult
    from fleetlab.sim.simulate import simulate as simulate

lazy(__name__)
