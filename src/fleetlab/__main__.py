"""`python -m fleetlab`."""

from fleetlab.start import main

main()
