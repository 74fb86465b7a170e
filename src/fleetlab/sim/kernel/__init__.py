"""What schedulers written in Python stand on: the event queue, the cluster, runs and the schedule made of them."""
