"""Fair share: by Fair Tree, Slurm's default, or by the classic formula of NO_FAIR_TREE.

Fair Tree compares siblings: `LevelFS` is an association's part of the shares of its level over its part of the usage.
Users are ranked by walking down from the root, the highest LevelFS first, and the factor of a user is its rank over
the number of users.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.usage import Usage, UsageRules
from fleetlab.sim.associations import OF_PARENT, Associations
from fleetlab.sim.jit import inner, step

NO_LEVEL = 4294967294.0  # LevelFS of an account without shares of its own


@inner
def _update_norm(usage: Usage, row: int) -> None:
    total = usage.billing[0]
    usage.norm[row] = min(usage.billing[row] / total, 1.0) if total else 0.0


@inner
def _update_level(associations: Associations, usage: Usage, row: int) -> None:
    """Compare an association with its siblings."""
    of = usage.billing[associations.level[row]]
    part = usage.billing[row] / of if of else 0.0
    usage.effective[row] = part
    _update_norm(usage, row)
    if associations.shares[row] == OF_PARENT:
        usage.level_fs[row] = np.inf if associations.user[row] else NO_LEVEL
    elif associations.shares_norm[row] == 0.0:
        usage.level_fs[row] = 0.0
    else:
        usage.level_fs[row] = associations.shares_norm[row] / part if part else np.inf


@inner
def _before(associations: Associations, usage: Usage, a: int, b: int) -> bool:
    """Is `a` ranked before its sibling `b`? Users go before accounts with the same LevelFS."""
    if usage.level_fs[a] != usage.level_fs[b]:
        return usage.level_fs[a] > usage.level_fs[b]
    if associations.user[a] != associations.user[b]:
        return associations.user[a] > associations.user[b]
    return a < b


@inner
def _sort_level(associations: Associations, usage: Usage, account: int) -> None:
    """Sort the children of an account; they are nearly in order since the last pass."""
    begin, end, ranking = associations.first[account], associations.first[account + 1], usage.ranking
    for k in range(begin + 1, end):
        row, at = ranking[k], k
        while at > begin and _before(associations, usage, row, ranking[at - 1]):
            ranking[at] = ranking[at - 1]
            at -= 1
        ranking[at] = row


@inner
def _rank_users(associations: Associations, usage: Usage) -> None:
    """Walk down the tree, the highest LevelFS first, and give each user its rank.

    Siblings that tie have the same rank, and what is below an account that ties with the sibling before it begins with
    the rank of that sibling. The documentation merges the children of accounts that tie; the source of Slurm does not.
    """
    stack, first, ranking = usage.stack, associations.first, usage.ranking
    rank = left = associations.users
    depth = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, first[0], 0
    while depth >= 0:
        account, k = stack[depth, 0], stack[depth, 1]
        if k == first[account + 1]:
            depth -= 1
            continue
        stack[depth, 1] = k + 1
        row, ties = ranking[k], stack[depth, 2]
        if k > first[account]:
            ties = int(usage.level_fs[row] == usage.level_fs[ranking[k - 1]])
        if associations.user[row]:
            if not ties:
                rank = left
            usage.factor[row] = rank / associations.users
            left -= 1
        else:
            depth += 1
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = row, first[row], ties


@step
def begin_fair_share(associations: Associations, usage: Usage, rules: UsageRules) -> None:
    """Begin a pass, before `decay_usage`: without Fair Tree accounts are compared now, users when a job asks."""
    if rules.fair_tree:
        return
    for row in range(1, len(usage.norm)):
        if associations.user[row]:
            usage.effective[row] = np.nan
        else:
            _update_classic(associations, usage, rules, row)


@step
def end_fair_share(associations: Associations, usage: Usage, rules: UsageRules, now: float) -> None:
    """End a pass, after all charges: set the clock, and with Fair Tree rank all users."""
    usage.clock[0] = np.floor(now)
    if not rules.fair_tree:
        return
    for row in range(1, len(usage.norm)):
        _update_level(associations, usage, row)
    for row in range(len(usage.norm)):
        _sort_level(associations, usage, row)
    _rank_users(associations, usage)


@inner
def _oblivious(associations: Associations, usage: Usage, row: int) -> float:
    """Return effective usage that does not depend on how deep the tree is (DEPTH_OBLIVIOUS)."""
    above, norm = associations.level[row], associations.shares_norm
    if not (norm[row] and norm[above] and usage.effective[above] and usage.norm[row]):
        return usage.norm[row]
    siblings = 0.0
    for k in range(associations.first[above], associations.first[above + 1]):
        sibling = associations.children[k]
        if associations.shares[sibling] != OF_PARENT:
            siblings += usage.norm[sibling]
    of_parent = usage.effective[above] / norm[above]
    of_level = usage.norm[row] / norm[row] / (siblings / norm[above])
    power = 1.0
    if np.log(of_parent) * np.log(of_level) < 0.0:
        power = 1.0 / (1.0 + (5.0 * np.log(of_parent)) ** 2.0)
    return of_parent * of_level**power * norm[row]


@inner
def _update_classic(associations: Associations, usage: Usage, rules: UsageRules, row: int) -> None:
    """Compute the effective usage of an association from its own and its parent's."""
    _update_norm(usage, row)
    above, own = associations.level[row], usage.norm[row]
    if above == 0:
        usage.effective[row] = own
    elif associations.shares[row] == OF_PARENT:
        usage.effective[row] = usage.effective[above]
    elif rules.depth_oblivious:
        usage.effective[row] = _oblivious(associations, usage, row)
    elif associations.level_shares[row] == 0.0:
        usage.effective[row] = usage.effective[above]
    else:
        part = associations.shares[row] / associations.level_shares[row]
        usage.effective[row] = own + (usage.effective[above] - own) * part


@step
def refresh_effective(associations: Associations, usage: Usage, rules: UsageRules, row: int) -> None:
    """Compute the effective usage of a user if nobody has asked since the last pass; then it stays until the next."""
    if np.isnan(usage.effective[row]):
        _update_classic(associations, usage, rules, row)


@step
def fair_share(associations: Associations, usage: Usage, rules: UsageRules, dampening: float, row: int) -> float:
    """Return the fair-share factor of an association's jobs, from 0 to 1."""
    if rules.fair_tree:
        return usage.factor[row]
    if associations.shares[row] == OF_PARENT:
        row = associations.level[row]
    refresh_effective(associations, usage, rules, row)
    shares = associations.shares_norm[row]
    if shares <= 0.0:
        return 0.0
    return 2.0 ** -(usage.effective[row] / shares / dampening)
