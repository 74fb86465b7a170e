"""Start the worker process of a tenant."""

from fleetlab.devices.start import large_import

if __name__ == "__main__":
    with large_import():
        from fleetlab.bench.workers.worker import serve
    serve()
