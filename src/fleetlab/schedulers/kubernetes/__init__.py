"""kube-scheduler, pod by pod: filters, scores in whole numbers, and preemption, as its default profile has them."""
