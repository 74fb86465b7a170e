"""An HTTP inference server for the bench's models, with dynamic batching, a bounded queue and explicit errors.

Every request gets one answer or one error. The event loop reads and writes, one thread computes, and between them is
a bounded queue. On a machine with few packages it is started as
`python -m fleetlab.gpu.serving.server WORKLOAD`.
"""
