"""Where a trace keeps what pods and nodes of Kubernetes say of themselves: the names of its series.

A job has a spec, by number; a spec is a pod without its name and amounts, and the same as it was created; both as plain
tables in JSON. Nodes are by their name.
"""

PODS, SPECS, NODES = "pods", "pod_specs", "node_specs"
# Of jobs that Kueue may admit in part: how many pods each asks for, the least that will do, and its completions.
PARALLELISM = "parallelism"
