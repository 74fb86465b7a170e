"""Change random lines of a package, one at a time, and count how many of the changes the tests catch.

`python -m benchmarks.mutations 20 --seed 0 src/fleetlab/sim src/fleetlab/studies` takes minutes a change: each runs the
tests that a change of its file concerns, in a copy of the repository, until one fails. `--tests` names the tests
instead. `--ref COMMIT` runs those of a commit too, on the same changes: where tests were made cheaper, those that did
not change need not run again to tell whether fewer changes are caught.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 600  # of the tests of one change
OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """One changed line of a file."""

    path: Path  # in the repository
    line: int
    text: str  # of the file with the change

    def __str__(self) -> str:
        changed = self.text.splitlines()[self.line - 1].strip()
        return f"{self.path}:{self.line}: {changed}"


def mutations(path: Path) -> Iterator[Mutation]:
    """Yield every change of a file: an operator that becomes another, or a number that is one higher."""
    text = (ROOT / path).read_text("utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    def changed(node: ast.expr, begin: int, end: int, becomes: str) -> Mutation:
        return Mutation(path, node.lineno, (raw[:begin] + becomes.encode() + raw[end:]).decode())

    for node in ast.walk(ast.parse(text)):
        pairs: list[tuple[ast.expr, ast.AST, ast.expr]] = []
        if isinstance(node, ast.Compare):
            pairs = [(node.left, node.ops[0], node.comparators[0])]
        elif isinstance(node, ast.BinOp):
            pairs = [(node.left, node.op, node.right)]
        elif isinstance(node, ast.BoolOp):
            pairs = [(node.values[0], node.op, node.values[1])]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            end = place(node.end_lineno or 0, node.end_col_offset or 0)
            yield changed(node, place(node.lineno, node.col_offset), end, repr(node.value + 1))
        for left, operator, right in pairs:
            names = OPERATORS.get(type(operator))
            begin, end = place(left.end_lineno or 0, left.end_col_offset or 0), place(right.lineno, right.col_offset)
            if names and raw[begin:end].decode().count(names[0]) == 1 and b"\n" not in raw[begin:end]:
                at = begin + raw[begin:end].decode().index(names[0])
                yield changed(left, at, at + len(names[0]), names[1])


def concerned(mutation: Mutation) -> list[str]:
    """Return the test files that a change of this file concerns."""
    from tests.selection import selected

    return [str(path.relative_to(ROOT)) for path in sorted(selected([str(mutation.path)])) if path.is_relative_to(ROOT)]


def is_caught(tree: Path, mutation: Mutation, tests: list[str]) -> bool:
    """Tell whether one of the tests fails, or does not end."""
    file = tree / mutation.path
    before = file.read_text("utf-8")
    file.write_text(mutation.text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m",
               "not validate and not slurm and not kubernetes and not ray", *tests]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(before, "utf-8")
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    return done.returncode != 0


def copied(folder: Path, ref: str | None = None) -> Path:
    """Copy the repository; with the tests of a commit, if there is one."""
    hidden = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, folder, ignore=hidden)
    if ref:
        shutil.rmtree(folder / "tests")
        packed = subprocess.run(["git", "archive", ref, "tests"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=packed, check=True)
    return folder


def main() -> None:
    """Print each change and whether it was caught, then the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", help="tests to run instead of those that a change concerns")
    parser.add_argument("--ref", help="a commit whose tests run too")
    parser.add_argument("folders", nargs="+", type=Path)
    words = parser.parse_args()
    files = sorted(p.relative_to(ROOT) for folder in words.folders for p in (ROOT / folder).rglob("*.py"))
    every = [mutation for file in files for mutation in mutations(file)]
    with tempfile.TemporaryDirectory() as scratch:
        trees = {"now": copied(Path(scratch) / "now")}
        if words.ref:
            trees[words.ref] = copied(Path(scratch) / "ref", words.ref)
        chosen = random.Random(words.seed).sample(every, words.count)
        caught = dict.fromkeys(trees, 0)
        for number, mutation in enumerate(chosen, 1):
            tests = words.tests or concerned(mutation)
            same = replace(mutation, text=(ROOT / mutation.path).read_text("utf-8"))
            for name, tree in trees.items():
                if (number == 1 or not words.tests) and is_caught(tree, same, tests):
                    sys.exit(f"error: the tests of {name} fail on unchanged code: {' '.join(tests)}")
                result = is_caught(tree, mutation, tests)
                caught[name] += result
                verdict = "caught" if result else "MISSED"
                print(f"{name}: {verdict} ({caught[name]} of {number}): {mutation}", flush=True)


if __name__ == "__main__":
    main()
