"""The formats, by the name that `--to` takes."""

from fleetlab.stacks.formats import (
    compose,
    device_plugin,
    dra,
    env,
    gpu_operator,
    hami,
    kai,
    kueue,
    mig_parted,
    volcano,
)
from fleetlab.stacks.formats.format import Stack

# In the order in which a file is recognized: the most specific first.
BY_NAME: dict[str, Stack] = {
    stack.name: stack
    for stack in (
        env.STACK,
        mig_parted.STACK,
        compose.STACK,
        dra.STACK,
        kueue.STACK,
        gpu_operator.STACK,
        device_plugin.STACK,
        volcano.STACK,
        kai.STACK,
        hami.STACK,
    )
}
