"""The scheduler of a trace's site with some of its settings changed: what if this line stood in slurm.conf?

It is spelled as a table, so that it travels in an address, an option and a study file, without the site's own settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fleetlab.core.errors import PolicyError
from fleetlab.core.names import clip
from fleetlab.core.schedulers import ConfigChange, QueueQuota, Scheduler, compare_settings

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster

KIND = "site"


@dataclass(frozen=True)
class SiteChange(Scheduler):
    """Lines of a configuration, or amounts of queues, over those of the site; all else stays."""

    name: ClassVar[str] = KIND
    title: ClassVar[str] = "the scheduler of the site"
    conf: str = ""  # lines, as `compare_config` takes them
    amounts: tuple[QueueQuota, ...] = ()  # of its queues, as `with_quotas` takes them

    @property
    def words(self) -> str:
        """What changes, for a title."""
        lines = clip("; ".join(self.conf.split("\n")))
        return " and ".join([*([lines] if lines else []), *(["other quotas"] if self.amounts else [])])

    def change(self, own: Scheduler, cluster: Cluster) -> ConfigChange:
        """Return the scheduler of a site with the change, and the settings that differ."""
        changed = ConfigChange(own.name, own, ())
        if self.conf.strip():
            if not own.takes_lines:
                msg = f"the configuration of {own.title} is not made of lines"
                raise PolicyError(msg, hint="`fleetlab compare TRACE --conf FILE` compares configurations in files")
            # The end of a line: what is given is never the name of a file.
            changed = own.compare_config(f"{self.conf}\n", cluster)
        if changed.cluster is not None and not changed.cluster.frame.equals(cluster.frame):
            msg = "these lines move nodes between partitions"
            raise PolicyError(msg, hint="`fleetlab compare TRACE --conf FILE` simulates that")
        if not self.amounts:
            return ConfigChange(own.name, changed.scheduler, changed.settings, changed.notes)
        edited = compare_settings(changed.scheduler, changed.scheduler.with_quotas(self.amounts), own.name)
        return ConfigChange(own.name, edited.scheduler, (*changed.settings, *edited.settings), changed.notes)
