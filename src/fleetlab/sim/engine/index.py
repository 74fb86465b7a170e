"""The placement index: the best-fitting node without looking at all of them.

GPUs of one type are in lists by how much of them is free, nodes of one type in lists by their number of idle GPUs. A
list is a row of bits with a second row that says which words of it are not empty, so the tightest GPU or node that may
hold an instance is the first set bit of the first list that is not empty. Where CPU is scarcer than GPUs, nodes of one
type are kept apart by how much CPU they have free, in tiers: else the lists fill up with idle GPUs that no job can use.
A job of CPU only goes to the node with the fewest GPUs on which it fits: a tree of the most CPU free finds it, over
nodes in that order.

The result is that of `placements.pick` with `best_fit`, node for node and GPU for GPU; a test compares the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetlab.sim.engine.beside import Reservation, may_take
from fleetlab.sim.jit import inline, inner, loop
from fleetlab.sim.layout import INDEX, INDEX_GROUP, WHOLE, Bits, Ints, NodeView, Record, Records, table
from fleetlab.sim.nodes import has_beside_gpus, holds

LEVELS = WHOLE + 1  # one list of GPUs for each amount of free milli
LEVEL_WORDS = (LEVELS + 63) // 64 + 1  # bits of the lists that are not empty; the last word says which words are not
SCARCE = 0.8  # CPU requested per GPU, of what the poorest node has per GPU: above it CPU may run out first
MAX_TIERS = 8
ONE = np.uint64(1)
NONE = np.uint64(0)


class Index(NamedTuple):
    """Lists of GPUs and nodes. A *group* is a GPU type and a tier of free CPU."""

    header: Record  # INDEX: numbers of types and tiers, and where parts of `numbers` begin
    groups: Records  # INDEX_GROUP: where the lists of a group begin in `bits` and how many words each has
    numbers: Ints  # members of groups, lengths of lists, nodes by number of GPUs, tree of free CPU, nodes of each type
    bits: Bits  # empty for placement policies that do not use the index


@inner
def lowest(word: Any) -> int:  # noqa: ANN401
    """Return the number of the lowest bit that is set."""
    n = 0
    if word & np.uint64(0xFFFFFFFF) == NONE:
        n += 32
        word >>= np.uint64(32)
    if word & np.uint64(0xFFFF) == NONE:
        n += 16
        word >>= np.uint64(16)
    if word & np.uint64(0xFF) == NONE:
        n += 8
        word >>= np.uint64(8)
    if word & np.uint64(0xF) == NONE:
        n += 4
        word >>= np.uint64(4)
    if word & np.uint64(0x3) == NONE:
        n += 2
        word >>= np.uint64(2)
    if word & ONE == NONE:
        n += 1
    return n


@inner
def set_bit(bits: Bits, begin: int, sums: int, i: int) -> None:
    """Add slot `i` to a list."""
    w = i >> 6
    bits[begin + w] |= ONE << np.uint64(i & 63)
    bits[sums + (w >> 6)] |= ONE << np.uint64(w & 63)


@inner
def clear_bit(bits: Bits, begin: int, sums: int, i: int) -> None:
    """Remove slot `i` from a list."""
    w = i >> 6
    rest = bits[begin + w] & ~(ONE << np.uint64(i & 63))
    bits[begin + w] = rest
    if rest == NONE:
        bits[sums + (w >> 6)] &= ~(ONE << np.uint64(w & 63))


@inline
def next_level(bits: Bits, t: int, level: int) -> int:
    """Return the first list of GPUs of group `t` that is not empty, from `level` on; LEVELS if there is none."""
    w, at = level >> 6, t * LEVEL_WORDS
    word = bits[at + w] & ~((ONE << np.uint64(level & 63)) - ONE)
    if word == NONE:
        later = bits[at + LEVEL_WORDS - 1] & ~((ONE << np.uint64(w + 1)) - ONE)
        if later == NONE:
            return LEVELS
        w = lowest(later)
        word = bits[at + w]
    return (w << 6) + lowest(word)


@inner
def tier_of(header: Record, cpu: int) -> int:
    """Return the tier of a node with so much CPU free. A node that holds so much is in this or a higher one."""
    tier = 0
    while tier + 1 < header.tiers and header.steps[tier] <= cpu:
        tier += 1
    return tier


# -- search ----------------------------------------------------------------------------------------------------------


@inline
def first_gpu(
    shape: Record, state: NodeView, index: Index, group: Record, level: int, below: int, beside: Reservation | None
) -> int:
    """Return the first GPU of a list, with a number below `below`, whose node has the other resources; -1: none."""
    bits, begin = index.bits, group.gpu_bits + level * group.gpu_words
    sums, vram, full = group.gpu_sums + level * group.gpu_sum_words, shape.gpu_memory, -1
    for k in range(group.gpu_sum_words):
        summary = bits[sums + k]
        while summary != NONE:
            w = (k << 6) + lowest(summary)
            summary &= summary - ONE
            word = bits[begin + w]
            while word != NONE:
                g = index.numbers[group.gpus + (w << 6) + lowest(word)]
                word &= word - ONE
                if g >= below:
                    return -1
                gpu = state.gpus[g]
                if gpu.node == full or gpu.free_memory < vram:
                    continue
                if not has_beside_gpus(shape, state.nodes[gpu.node], state.apps):
                    full = gpu.node
                    continue
                able = True
                if beside is not None:
                    able = may_take(shape, gpu.node, g, beside)
                if able:
                    return g
    return -1


@inline
def best_fraction(shape: Record, state: NodeView, index: Index, beside: Reservation | None) -> int:
    """Return the GPU with the least free that holds a fraction, the first of equals; -1: none."""
    header, level, none = index.header, shape.milli, len(state.gpus)
    tiers, types = header.tiers, shape.types
    tier = tier_of(header, shape.cpu) if tiers > 1 else 0
    while level < LEVELS:
        least = LEVELS
        for t in range(header.types):
            if types >> t & 1:
                for group in range(t * tiers + tier, (t + 1) * tiers):
                    least = min(least, next_level(index.bits, group, level))
        if least == LEVELS:
            return -1
        best = none
        for t in range(header.types):
            if types >> t & 1:
                for group in range(t * tiers + tier, (t + 1) * tiers):
                    if index.numbers[header.gpu_counts + group * LEVELS + least]:
                        g = first_gpu(shape, state, index, index.groups[group], least, best, beside)
                        if g >= 0:
                            best = g
        if best < none:
            return best
        level = least + 1
    return -1


@inline
def first_node(
    shape: Record, state: NodeView, index: Index, group: Record, idle: int, below: int, beside: Reservation | None
) -> int:
    """Return the first node of a list, with a number below `below`, that holds an instance; -1: none."""
    bits, begin = index.bits, group.node_bits + idle * group.node_words
    sums = group.node_sums + idle * group.node_sum_words
    for k in range(group.node_sum_words):
        summary = bits[sums + k]
        while summary != NONE:
            w = (k << 6) + lowest(summary)
            summary &= summary - ONE
            word = bits[begin + w]
            while word != NONE:
                n = index.numbers[group.nodes + (w << 6) + lowest(word)]
                word &= word - ONE
                if n >= below:
                    return -1
                node = state.nodes[n]
                able = has_beside_gpus(shape, node, state.apps) and (
                    shape.gpu_memory == 0 or holds(shape, node, state.gpus, state.apps)
                )
                if beside is not None:
                    able = able and may_take(shape, n, -1, beside)
                if able:
                    return n
    return -1


@inline
def best_whole(shape: Record, state: NodeView, index: Index, beside: Reservation | None) -> int:
    """Return the node with the fewest idle GPUs that holds an instance of whole GPUs, the first of equals; -1: none."""
    header, types, none = index.header, shape.types, len(state.nodes)
    tiers = header.tiers
    tier = tier_of(header, shape.cpu) if tiers > 1 else 0
    lists = 0
    for t in range(header.types):
        if types >> t & 1:
            for group in range(t * tiers + tier, (t + 1) * tiers):
                lists |= index.groups[group].idle_lists
    idle = shape.gpus
    lists >>= idle
    while lists:
        if lists & 1:
            best = none
            for t in range(header.types):
                if types >> t & 1:
                    for group in range(t * tiers + tier, (t + 1) * tiers):
                        if index.groups[group].idle_lists >> idle & 1:
                            n = first_node(shape, state, index, index.groups[group], idle, best, beside)
                            if n >= 0:
                                best = n
            if best < none:
                return best
        lists >>= 1
        idle += 1
    return -1


@inner
def best_cpu(shape: Record, state: NodeView, header: Record, numbers: Ints, beside: Reservation | None) -> int:
    """Return the node with the fewest GPUs that holds an instance of CPU only, the first of equals; -1: none."""
    need, leaves, tree = shape.cpu, header.leaves, header.cpu_tree
    if numbers[tree + 1] < need:
        return -1
    i = 1
    while True:
        while i < leaves:  # down to the first leaf with enough
            i = 2 * i if numbers[tree + 2 * i] >= need else 2 * i + 1
        n = numbers[header.cpu_order + i - leaves]
        able = shape.types & state.nodes[n].node_class != 0 and has_beside_gpus(shape, state.nodes[n], state.apps)
        if beside is not None:
            able = able and may_take(shape, n, -1, beside)
        if able:
            return n
        while True:  # on to the next subtree to the right that has enough
            while i & 1:
                i >>= 1
            if i == 0:
                return -1
            i += 1
            if numbers[tree + i] >= need:
                break


# -- update ----------------------------------------------------------------------------------------------------------


@inline
def set_free_cpu(header: Record, numbers: Ints, rank: int, cpu: int) -> None:
    """Set in the tree how much CPU the node of that rank has free."""
    tree, i = header.cpu_tree, rank + header.leaves
    numbers[tree + i] = cpu
    while i > 1:
        i >>= 1
        most = max(numbers[tree + 2 * i], numbers[tree + 2 * i + 1])
        if numbers[tree + i] == most:
            return
        numbers[tree + i] = most


@inline
def add_node(node: Record, index: Index, g: int, idle: int) -> None:
    """Add a node to the list of those of group `g` with `idle` GPUs."""
    group, at = index.groups[g], index.header.node_counts + g * (index.header.most_gpus + 1) + idle
    begin, sums = group.node_bits + idle * group.node_words, group.node_sums + idle * group.node_sum_words
    set_bit(index.bits, begin, sums, node.index_slot)
    index.numbers[at] += 1
    group.idle_lists |= 1 << idle


@inline
def remove_node(node: Record, index: Index, g: int, idle: int) -> None:
    """Undo `add_node`."""
    group, at = index.groups[g], index.header.node_counts + g * (index.header.most_gpus + 1) + idle
    begin, sums = group.node_bits + idle * group.node_words, group.node_sums + idle * group.node_sum_words
    clear_bit(index.bits, begin, sums, node.index_slot)
    index.numbers[at] -= 1
    if index.numbers[at] == 0:
        group.idle_lists &= ~(1 << idle)


@inner
def add_gpu(group: Record, g: int, header: Record, numbers: Ints, bits: Bits, level: int, slot: int) -> None:
    """Add a GPU to the list of those of group `g` with `level` milli free."""
    set_bit(bits, group.gpu_bits + level * group.gpu_words, group.gpu_sums + level * group.gpu_sum_words, slot)
    at = header.gpu_counts + g * LEVELS + level
    if numbers[at] == 0:
        bits[g * LEVEL_WORDS + (level >> 6)] |= ONE << np.uint64(level & 63)
        bits[g * LEVEL_WORDS + LEVEL_WORDS - 1] |= ONE << np.uint64(level >> 6)
    numbers[at] += 1


@inner
def remove_gpu(group: Record, g: int, header: Record, numbers: Ints, bits: Bits, level: int, slot: int) -> None:
    """Undo `add_gpu`."""
    clear_bit(bits, group.gpu_bits + level * group.gpu_words, group.gpu_sums + level * group.gpu_sum_words, slot)
    at = header.gpu_counts + g * LEVELS + level
    numbers[at] -= 1
    if numbers[at] == 0:
        w = g * LEVEL_WORDS + (level >> 6)
        bits[w] &= ~(ONE << np.uint64(level & 63))
        if bits[w] == NONE:
            bits[g * LEVEL_WORDS + LEVEL_WORDS - 1] &= ~(ONE << np.uint64(level >> 6))


@inline
def move_gpu(gpu: Record, index: Index, old_group: int, old: int, new_group: int, new: int) -> None:
    """Move a GPU from one list to another."""
    header, groups, numbers, bits = index
    remove_gpu(groups[old_group], old_group, header, numbers, bits, old, gpu.index_slot)
    add_gpu(groups[new_group], new_group, header, numbers, bits, new, gpu.index_slot)


@inline
def group_of(node: Record, header: Record) -> int:
    """Return the group that a node with GPUs belongs to, by its free CPU."""
    if header.tiers == 1:
        return node.index_group
    return node.index_group - node.index_group % header.tiers + tier_of(header, node.free_cpu)


@inline
def update_index(node: Record, gpus: Records, index: Index, taken: int, milli: int, idle: int) -> None:
    """Move the GPUs `taken` of a node, which had `milli` more free, and the node, which had `idle`, to new lists."""
    set_free_cpu(index.header, index.numbers, node.cpu_rank, node.free_cpu)
    if node.gpu_type == 0:
        return
    old, g = node.index_group, node.first_gpu
    group = group_of(node, index.header)
    if group == old:
        while taken:
            if taken & 1:
                move_gpu(gpus[g], index, group, gpus[g].free + milli, group, gpus[g].free)
            taken >>= 1
            g += 1
    else:  # its free CPU is in another tier now: all its GPUs move
        node.index_group = group
        while g < node.end_gpu:
            move_gpu(gpus[g], index, old, gpus[g].free + milli * (taken & 1), group, gpus[g].free)
            taken >>= 1
            g += 1
    if group != old or node.idle_gpus != idle:
        remove_node(node, index, old, idle)
        add_node(node, index, group, node.idle_gpus)


# -- construction ----------------------------------------------------------------------------------------------------


def tier_steps(shapes: Records, jobs: Ints, nodes: Records) -> Ints:
    """Return the CPU at which tiers begin: the most frequent requests; none where GPUs run out before CPU does."""
    with_gpu = shapes[shapes.gpus > 0]
    jobs, nodes = jobs[shapes.gpus > 0], nodes[nodes.gpu_type > 0]
    ratio = (jobs * with_gpu.cpu).sum() / max(1, (jobs * with_gpu.gpus * with_gpu.milli).sum())
    if not len(nodes) or ratio < SCARCE * (nodes.free_cpu / nodes.free_gpu).min():
        return np.zeros(0, dtype=np.int64)
    values, which = np.unique(with_gpu.cpu, return_inverse=True)
    frequency = np.bincount(which, weights=jobs)
    return np.sort(values[np.argsort(-frequency, kind="stable")[: MAX_TIERS - 1]])


def build_index(state: NodeView, steps: Ints) -> Index:
    """Build the index of nodes as they are; their fields `index_*` and `cpu_rank` are set."""
    nodes, gpus = state.nodes, state.gpus
    types, tiers = max(1, int(nodes.gpu_type.max(initial=0)).bit_length()), len(steps) + 1
    sizes = nodes.end_gpu - nodes.first_gpu
    most, leaves = int(sizes.max(initial=0)), 1 << max(0, len(nodes) - 1).bit_length()
    groups = table(types * tiers, INDEX_GROUP)
    at, bits = 0, len(groups) * LEVEL_WORDS
    parts: list[Ints] = []
    ranges: list[int] = []  # where the nodes of each type begin and end
    for t in range(types):
        of_type, cards = np.flatnonzero(nodes.type_number == t), np.flatnonzero(nodes.type_number[gpus.node] == t)
        nodes.index_slot[of_type], gpus.index_slot[cards] = np.arange(len(of_type)), np.arange(len(cards))
        for kind, lists, members in (("gpu", LEVELS, cards), ("node", most + 1, of_type)):
            words = -(-len(members) // 64)
            summary = -(-words // 64)
            for number in range(t * tiers, (t + 1) * tiers):
                group = groups[number]
                group[f"{kind}_bits"], group[f"{kind}_words"] = bits, words
                group[f"{kind}_sums"], group[f"{kind}_sum_words"] = bits + lists * words, summary
                group[f"{kind}s"] = at
                bits += lists * (words + summary)
            parts.append(members)
            at += len(members)
        ranges += [at - len(of_type), at]
    order = np.argsort(sizes, kind="stable")
    nodes.cpu_rank[order], nodes.index_group[:] = np.arange(len(order)), nodes.type_number * tiers
    lengths = {
        "gpu_counts": len(groups) * LEVELS, "node_counts": len(groups) * (most + 1), "cpu_order": len(order),
        "cpu_tree": 2 * leaves, "type_ranges": len(ranges),
    }  # fmt: skip
    begins = dict(zip(lengths, np.cumsum([at, *lengths.values()]).tolist(), strict=False))
    header = table(1, INDEX, types=types, tiers=tiers, most_gpus=most, leaves=leaves, **begins)[0]
    header.steps[: len(steps)] = steps
    counts = np.zeros(lengths["gpu_counts"] + lengths["node_counts"], dtype=np.int64)
    tree = np.full(2 * leaves, -1, dtype=np.int64)
    numbers = np.concatenate([*parts, counts, order, tree, np.array(ranges, dtype=np.int64)])
    index = Index(header, groups, numbers, np.zeros(bits, dtype=np.uint64))
    fill_index(state, index)
    return index


@loop
def fill_index(state: NodeView, index: Index) -> None:
    """Put every GPU and node into its list."""
    for n in range(len(state.nodes)):
        node = state.nodes[n]
        set_free_cpu(index.header, index.numbers, node.cpu_rank, node.free_cpu)
        if node.gpu_type:
            node.index_group += tier_of(index.header, node.free_cpu)
            add_node(node, index, node.index_group, node.idle_gpus)
    for g in range(len(state.gpus)):
        gpu = state.gpus[g]
        group = state.nodes[gpu.node].index_group
        add_gpu(index.groups[group], group, index.header, index.numbers, index.bits, gpu.free, gpu.index_slot)
