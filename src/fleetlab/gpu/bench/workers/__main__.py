"""Start the worker process of a tenant."""

from fleetlab.gpu.devices.console import large_import

if __name__ == "__main__":
    with large_import():
        from fleetlab.gpu.bench.workers.worker import serve
    serve()
