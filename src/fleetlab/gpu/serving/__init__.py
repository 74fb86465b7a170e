"""An inference server for the models of the bench, and open-loop load on any server of this machine."""
