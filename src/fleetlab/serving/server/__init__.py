"""An HTTP server that answers with a model of the bench: it batches what comes, refuses what it cannot do, and says so.

A request is answered once, or refused once with a reason; nothing is lost and nothing grows. The event loop reads and
writes, one thread computes, and between them is one bounded queue. Where little is installed it is started as
`python -m fleetlab.serving.server WORK`.
"""
