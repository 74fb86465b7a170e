"""`python -m benchmarks.theory`: simulated means beside exact ones, the cases of tests/sim/test_theory.py."""

from __future__ import annotations

import time

from tests.sim.test_theory import BOUNDED, EXACT, GANGS, RUNS, Found, measured, saturated


def row(name: str, found: Found, jobs: int, seconds: float) -> str:
    """One line of the table."""
    half, plain = (100 * h / found.exact for h in (found.half, found.plain_half))
    digits = f"{found.exact:.5g} | {found.mean:.5g} | {half:.2f} | {100 * (found.mean / found.exact - 1):+.2f}"
    inside = "yes" if found.off <= 1 else "no"
    return f"| {name} | {digits} | {inside} | {found.plain:.5g} | {plain:.1f} | {jobs:,} | {seconds:.1f} |"


def main() -> None:
    """Run all of them, and say how many intervals hold the exact mean."""
    print("| case | exact | simulated | ± % | off by % | inside | without controls | ± % | jobs | CPU s |")
    print("|---|--:|--:|--:|--:|---|--:|--:|--:|--:|")
    offs = []
    for case in EXACT + BOUNDED:
        begin = time.process_time()
        found = measured(case)
        seconds = time.process_time() - begin
        words = ("",) if len(found) == 1 else (", the first", ", the second")
        for word, one in zip(words, found, strict=True):
            print(row(case.name + word, one, RUNS * case.count, seconds), flush=True)
        offs += [one.off for one in found] if case in EXACT else []
    for name in GANGS:
        begin = time.process_time()
        found_limit = saturated(name)
        print(row(f"gangs {name}, saturated", found_limit, 300_000, time.process_time() - begin), flush=True)
        offs.append(found_limit.off)
    print(f"\n{sum(off <= 1 for off in offs)} of {len(offs)} intervals hold the exact mean")


if __name__ == "__main__":
    main()
