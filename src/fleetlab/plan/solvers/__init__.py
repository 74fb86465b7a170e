"""Ways to compute a plan and a bound on the best one."""
