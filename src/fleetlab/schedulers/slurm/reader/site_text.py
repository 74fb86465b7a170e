"""What is known of a site, as text: each listing and file as it was read, nothing interpreted."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetlab.core.queues import Qos
from fleetlab.schedulers.slurm.reader.accounts import Account
from fleetlab.schedulers.slurm.reader.conf_text import ConfText, Entry


@dataclass
class Site:
    """What is known of a site so far, as text."""

    conf: ConfText = field(default_factory=ConfText)
    running: ConfText = field(default_factory=ConfText)
    partitions: list[Entry] = field(default_factory=list)
    reservations: list[Entry] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    shares: list[Account] = field(default_factory=list)
    qos: list[Qos] = field(default_factory=list)
    events: list[str] = field(default_factory=list)  # lists of what happened to nodes, as text
    statistics: list[str] = field(default_factory=list)  # what sdiag printed
    collected: Entry = field(default_factory=dict)  # zone and since, as the collecting script wrote them
    files: list[str] = field(default_factory=list)

    @property
    def values(self) -> Entry:
        """Its settings: those that were running before those in a file."""
        return {key: value for key, value in (self.conf.values | self.running.values).items() if value}

    @property
    def all_files(self) -> set[str]:
        """The names of all files that tell of it, also of those that others include."""
        return {*self.files, *self.conf.files}

    def __bool__(self) -> bool:
        """Whether anything tells how it is configured."""
        listed = self.running.values or self.partitions or self.accounts or self.qos or self.shares or self.reservations
        return bool(self.conf.files or listed)
