"""A real kube-scheduler on this host: fake nodes, pods on a schedule, and what it decided, checked pod by pod."""
