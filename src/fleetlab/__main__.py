"""`python -m fleetlab`."""

from fleetlab.cli import main

main()
