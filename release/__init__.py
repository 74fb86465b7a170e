"""What makes a release: run by `make dist`."""
