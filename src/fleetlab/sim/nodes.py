"""What fits on a node, and what instances take of it: the compiled arithmetic that both loops share.

`shape` is a row of SHAPE, `node` a row of NODE: see `layout`. Everything here also runs as plain Python, with the same
result.
"""

from __future__ import annotations

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import AMOUNTS, UNLIMITED, WHOLE, Ints, NodeView, Record, Records

BESIDE_GPUS = len(AMOUNTS)


@inner
def has_beside_gpus(shape: Record, node: Record, apps: Ints) -> bool:
    """Return whether a node has what an instance needs beside GPUs."""
    if node.exclusive or (shape.exclusive and node.instances):
        return False
    for k in range(BESIDE_GPUS):
        if node.free[k] < shape.amounts[k]:
            return False
    return shape.per_node == 0 or apps[shape.app, node.number] < shape.per_node


@inner
def holds(shape: Record, node: Record, gpus: Records, apps: Ints) -> bool:
    """Return whether a node can take an instance now."""
    if node.up == 0 or not has_beside_gpus(shape, node, apps):
        return False
    if shape.gpus == 0:
        return shape.types & node.node_class != 0
    if shape.types & node.gpu_type == 0:
        return False
    if shape.gpu_memory == 0:
        return node.largest_free >= shape.milli if shape.milli < WHOLE else node.idle_gpus >= shape.gpus
    count = 0
    for g in range(node.first_gpu, node.end_gpu):
        count += gpus[g].free >= shape.milli and gpus[g].free_memory >= shape.gpu_memory
    return count >= shape.gpus


@inner
def gpu_slots(shape: Record, node: Record, gpus: Records) -> int:
    """Return how often the GPUs of a node have free what a shape requests of one."""
    milli = shape.milli
    if milli == WHOLE:
        return node.idle_gpus
    count = 0
    if node.largest_free >= milli:
        for g in range(node.first_gpu, node.end_gpu):
            count += gpus[g].free >= milli if milli > WHOLE // 2 else gpus[g].free // milli
    return count


@inner
def node_slots(shape: Record, node: Record, gpus: Records, apps: Ints) -> int:
    """Return how many instances a node could take now, one after the other."""
    if not holds(shape, node, gpus, apps):
        return 0
    most = 1 if shape.exclusive else UNLIMITED
    for k in range(BESIDE_GPUS):
        if shape.amounts[k]:
            most = min(most, node.free[k] // shape.amounts[k])
    if shape.per_node:
        most = min(most, shape.per_node - apps[shape.app, node.number])
    if shape.gpus == 0:
        return most
    if shape.gpu_memory == 0:
        return min(most, gpu_slots(shape, node, gpus) // shape.gpus)
    slots = 0
    for g in range(node.first_gpu, node.end_gpu):
        slots += min(gpus[g].free // shape.milli, gpus[g].free_memory // shape.gpu_memory)
    return min(most, slots // shape.gpus)


@inner
def tightest(shape: Record, node: Record, gpus: Records) -> int:
    """Return the GPU of a node with the least free that still holds a fraction; the first of equals."""
    best, least = -1, WHOLE + 1
    for g in range(node.first_gpu, node.end_gpu):
        gpu = gpus[g]
        if gpu.free >= shape.milli and gpu.free_memory >= shape.gpu_memory and gpu.free < least:
            best, least = g, gpu.free
    return best


@inner
def largest_free(node: Record, gpus: Records) -> int:
    """Return the most that is free on one GPU of a node, milli."""
    most = 0
    for g in range(node.first_gpu, node.end_gpu):
        most = max(most, gpus[g].free)
    return most


@inner
def recount(node: Record, gpus: Records) -> None:
    """Sum up what is free on the GPUs of a node."""
    free, idle = 0, 0
    for g in range(node.first_gpu, node.end_gpu):
        free += gpus[g].free
        idle += gpus[g].free == WHOLE
    node.free_gpu, node.idle_gpus, node.largest_free = free, idle, largest_free(node, gpus)


@inner
def change(shape: Record, node: Record, apps: Ints, sign: int) -> None:
    """Take (1) or give back (-1) what an instance has of a node beside GPUs."""
    for k in range(BESIDE_GPUS):
        node.free[k] -= sign * shape.amounts[k]
    node.instances += sign
    node.version += 1
    node.exclusive += sign * shape.exclusive
    if shape.per_node and not shape.distinct:
        apps[shape.app, node.number] += sign


@inner
def take(shape: Record, node: Record, gpus: Records, apps: Ints, at: int) -> int:
    """Allocate what an instance requests on a node; return its GPUs, as bits counted from the node's first.

    A fraction comes from GPU `at`, or, if that is -1, from the tightest that holds it; whole GPUs are the first idle.
    """
    change(shape, node, apps, 1)
    if shape.distinct:
        apps[shape.app, node.number] = 1
    if shape.gpus == 0:
        return 0
    node.by_request[shape.request] += 1
    node.free_gpu -= shape.gpus * shape.milli
    if shape.milli < WHOLE:
        g = at if at >= 0 else tightest(shape, node, gpus)
        free = gpus[g].free
        gpus[g].free = free - shape.milli
        gpus[g].free_memory -= shape.gpu_memory
        node.idle_gpus -= free == WHOLE
        if free == node.largest_free:
            node.largest_free = largest_free(node, gpus)
        return 1 << (g - node.first_gpu)
    bits, missing = 0, shape.gpus
    for g in range(node.first_gpu, node.end_gpu):
        if missing and gpus[g].free == WHOLE and gpus[g].free_memory >= shape.gpu_memory:
            gpus[g].free = 0
            gpus[g].free_memory -= shape.gpu_memory
            bits |= 1 << (g - node.first_gpu)
            missing -= 1
    node.idle_gpus -= shape.gpus
    if node.idle_gpus == 0:
        node.largest_free = largest_free(node, gpus)
    return bits


@inner
def end_gang(shape: Record, view: NodeView, nodes: Ints, at: int, count: int) -> None:
    """Say that a job has its `nodes`: where its instances are on distinct nodes, the next job may use these again."""
    if shape.distinct:
        for i in range(at, at + count):
            view.apps[shape.app, nodes[i]] = 0
            view.nodes[nodes[i]].version += 1


@inner
def take_gpus(shape: Record, node: Record, gpus: Records, apps: Ints, bits: int) -> None:
    """Allocate the GPUs `bits` of a node, and no others: undo `give_back`."""
    change(shape, node, apps, 1)
    if bits:
        node.by_request[shape.request] += 1
        for g in range(node.first_gpu, node.end_gpu):
            if bits >> (g - node.first_gpu) & 1:
                gpus[g].free -= shape.milli
                gpus[g].free_memory -= shape.gpu_memory
        recount(node, gpus)


@inner
def give_back(shape: Record, node: Record, gpus: Records, apps: Ints, bits: int) -> None:
    """Undo `take`."""
    change(shape, node, apps, -1)
    if bits == 0:
        return
    node.by_request[shape.request] -= 1
    node.free_gpu += shape.gpus * shape.milli
    g = node.first_gpu
    while bits:
        if bits & 1:
            gpus[g].free += shape.milli
            gpus[g].free_memory += shape.gpu_memory
            node.idle_gpus += gpus[g].free == WHOLE
            node.largest_free = max(node.largest_free, gpus[g].free)
        bits >>= 1
        g += 1


@inner
def units(shape: Record, free: int, memory: int) -> int:
    """Return how often a GPU with so much free has what a shape requests of one."""
    return min(free // shape.milli, memory // shape.gpu_memory) if shape.gpu_memory else free // shape.milli


@inner
def node_slots_after(of: Record, shape: Record, node: Record, gpus: Records, apps: Ints, at: int) -> int:
    """Return what `node_slots` of `of` would be with an instance of `shape` more on the node, a fraction on GPU `at`.

    The same as to take it, count, and give it back, but quicker: this is asked of many nodes.
    """
    if of.exclusive or shape.exclusive:
        return 0
    most = UNLIMITED
    for k in range(BESIDE_GPUS):
        if of.amounts[k]:
            most = min(most, (node.free[k] - shape.amounts[k]) // of.amounts[k])
    if of.per_node:
        same = shape.per_node > 0 and shape.distinct == 0 and shape.app == of.app
        most = min(most, of.per_node - apps[of.app, node.number] - (1 if same else 0))
    if of.gpus == 0:
        return most
    count, missing = 0, shape.gpus if shape.milli == WHOLE else 0
    for g in range(node.first_gpu, node.end_gpu):
        free, memory = gpus[g].free, gpus[g].free_memory
        if missing and free == WHOLE:
            missing -= 1
        elif g == at:
            count += units(of, free - shape.milli, memory - shape.gpu_memory)
        else:
            count += units(of, free, memory)
    return min(most, count // of.gpus)


@inner
def intersect(node: Record, gpus: Records, other: Record, other_gpus: Records) -> None:
    """Leave of a node only what is free on the same node in another state too."""
    for k in range(BESIDE_GPUS):
        node.free[k] = min(node.free[k], other.free[k])
    node.up = min(node.up, other.up)
    node.exclusive, node.instances = max(node.exclusive, other.exclusive), max(node.instances, other.instances)
    for g in range(node.first_gpu, node.end_gpu):
        gpus[g].free = min(gpus[g].free, other_gpus[g].free)
        gpus[g].free_memory = min(gpus[g].free_memory, other_gpus[g].free_memory)
    recount(node, gpus)
