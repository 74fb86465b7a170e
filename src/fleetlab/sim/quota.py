"""Quotas as compiled code takes them: the GPUs that a user or a queue may have allocated at once.

A *member* is all jobs that count in the same quotas and request the same: they may start or wait together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import WorkloadError
from fleetlab.core.catalog.reasons import ABOVE_QUOTA
from fleetlab.core.word_values import quota_key
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import WHOLE, Ints, Records, record, table, writable

MOST, HELD = range(2)
NO_LIMIT = -1
MEMBER = record("gpu first end")  # GPU milli; its quotas are entries of `quotas_of`


class Quotas(NamedTuple):
    """Quotas, and what is held of them now, in GPU milli."""

    members: Records  # MEMBER
    quotas_of: Ints  # quotas of each member, one after the other
    gpus: Ints  # [quotas, 2]: MOST, which may be NO_LIMIT, and HELD


NO_QUOTAS = Quotas(table(0, MEMBER), np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int64))


def copied(quotas: Quotas) -> Quotas:
    """Return tables that may change."""
    return Quotas(*(writable(array) for array in quotas))


def quota_tables(
    gpu_milli: Ints, tenant: Ints, quotas_of: Sequence[Sequence[int]], most: Sequence[float]
) -> tuple[Quotas, Ints]:
    """Return the tables of quotas of GPUs, and the member of each job; `quotas_of` has those of each tenant."""
    distinct, member = np.unique(np.column_stack([tenant, gpu_milli]), axis=0, return_inverse=True)
    counted = [quotas_of[of] for of in distinct[:, 0]]
    end = np.cumsum([len(quotas) for quotas in counted], dtype=np.int64)
    first = end - np.array([len(quotas) for quotas in counted], dtype=np.int64)
    members = table(len(distinct), MEMBER, gpu=distinct[:, 1], first=first, end=end)
    gpus = np.array([(round(gpus * WHOLE) if gpus >= 0 else NO_LIMIT, 0) for gpus in most], dtype=np.int64)
    flat = np.array([quota for quotas in counted for quota in quotas], dtype=np.int64)
    return Quotas(members, flat, gpus.reshape(-1, 2)), member.reshape(-1).astype(np.int64)


class StatedQuotas:
    """The quotas of a policy: GPUs for all users, or by the name of a user, or by COLUMN:NAME such as queue:vision."""

    def __init__(self, stated: float | Mapping[str, float], frame: pl.DataFrame) -> None:
        if not isinstance(stated, Mapping):
            stated = dict.fromkeys(frame["user"].cast(pl.String).fill_null("").unique().sort().to_list(), stated)
        self.most = {quota_key(name): gpus for name, gpus in stated.items()}
        self.columns = list(dict.fromkeys(column for column, _ in self.most)) or ["user"]
        for (column, name), stated_as in zip(self.most, stated, strict=True):
            names = frame[column].cast(pl.String).fill_null("").unique().sort().to_list()
            if name not in names:
                msg = f"a quota for a {column} without jobs: `{stated_as}`"
                raise WorkloadError(msg, hint=f"{column}s are {', '.join(names[:5])}{'…' if len(names) > 5 else ''}")

    def _tenants(self, frame: pl.DataFrame) -> tuple[Ints, list[list[int]]]:
        """Return which jobs count in the same quotas, and which those are."""
        names = frame.select(pl.col(column).cast(pl.String).fill_null("") for column in self.columns)
        distinct = names.unique(maintain_order=True).with_row_index("tenant")
        tenant = names.join(distinct, on=self.columns, how="left", maintain_order="left")["tenant"]
        numbers = {key: number for number, key in enumerate(self.most)}
        keys = [zip(self.columns, row[1:], strict=True) for row in distinct.iter_rows()]
        return tenant.to_numpy().astype(np.int64), [[numbers[key] for key in of if key in numbers] for of in keys]

    def tables(self, frame: pl.DataFrame) -> tuple[Quotas, Ints]:
        """Return the quotas as compiled code takes them, and the member of each job."""
        return quota_tables(_gpu_milli(frame), *self._tenants(frame), list(self.most.values()))

    def refusals(self, frame: pl.DataFrame) -> pl.Series:
        """Return why a job can never run, row by row; null where it can."""
        tenant, quotas_of = self._tenants(frame)
        gpus = [round(gpus * WHOLE) for gpus in self.most.values()]
        least = np.array([min((gpus[k] for k in quotas), default=np.inf) for quotas in quotas_of] or [np.inf])
        above = _gpu_milli(frame) > least[tenant]
        return pl.Series("reason", [ABOVE_QUOTA if one else None for one in above.tolist()], dtype=pl.String)


def _gpu_milli(frame: pl.DataFrame) -> Ints:
    gpus: Ints = frame["gpu_milli"].to_numpy().astype(np.int64) * frame["instances"].to_numpy().astype(np.int64)
    return gpus


@inner
def is_barred(q: Quotas, m: int) -> bool:
    """Return whether a job of a member would exceed a quota; -1: it counts in none."""
    if m >= 0 and q.members[m].gpu:
        for k in range(q.members[m].first, q.members[m].end):
            quota = q.gpus[q.quotas_of[k]]
            if quota[0] >= 0 and quota[1] + q.members[m].gpu > quota[0]:
                return True
    return False


@inner
def charge(q: Quotas, m: int, sign: int) -> None:
    """Let a job begin to hold what it requests (1), or end (-1)."""
    if m >= 0:
        for k in range(q.members[m].first, q.members[m].end):
            q.gpus[q.quotas_of[k], 1] += sign * q.members[m].gpu
