"""The formats, by the name that `--to` takes; each is a module with the functions of a `Stack`."""

from fleetlab.gpu.stacks.formats import (
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
from fleetlab.gpu.stacks.formats.format import Stack

# In the order in which a file is recognized: the most specific first.
BY_NAME: dict[str, Stack] = {
    "env": env,
    "mig-parted": mig_parted,
    "compose": compose,
    "dra": dra,
    "kueue": kueue,
    "gpu-operator": gpu_operator,
    "device-plugin": device_plugin,
    "volcano": volcano,
    "kai": kai,
    "hami": hami,
}
