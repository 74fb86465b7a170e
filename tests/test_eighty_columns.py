"""Every command on a terminal of 80 columns: no line is wider, no number is broken, nothing is cut."""

import re
from pathlib import Path

import pytest

from fleetlab import cli

WIDTH = 80
SPEC = 'mode = "mps"\ngpu = "H200"\nreplicas = 4\npercent = 25\nmemory_mib = 35000\nname = "lab"\n'
NODES = """
[[node]]
count = 2
gpu_type = "MISC"
gpus = 8
cpu_milli = 96000
memory_mib = 524288
"""
DEMAND = """
[[instance]]
count = 9
app = "encoder"
cpu_milli = 8000
memory_mib = 40960
gpu_milli = 1000
"""
STUDY = 'trace = "builtin:60"\norder = ["fifo", "sjf"]\nseeds = 2\n[compare]\nagainst = { order = "fifo" }\n'
MEASURED = Path(__file__).parents[1] / "measurements" / "gpu-sharing.tar.gz"
SUITE = MEASURED / "h200" / "pairs-ts"
# What a command needs is made by those before it.
LINES = """
synthesize pai2020 --jobs 80 --out made
show made
show made --rejects
describe made
describe made --only arrivals,runtimes,requests,machines,sharing
traces
audit made
simulate made
compare made --policies fifo,sjf --workers 0
diagnose made --workers 0
explain made 5
model made
solve
solve M/M/c --lam 9.2 --mu 1 --c 8
plan demand.toml --nodes nodes.toml --out placement.csv
defragment demand.toml --nodes nodes.toml --current placement.csv --free node
sweep study.toml --store runs --workers 1
runs runs
runs runs --against order=fifo
share status
share mig profiles --model A100-40
share mig layouts --model A100-40
share mig check 3g.71gb,2x2g.35gb --model H200
share mig apply 3g.71gb,2x2g.35gb --model H200
share emit spec.toml --to dra --out claim.yaml
share lint claim.yaml
share read claim.yaml
doctor
bench show SUITE
bench analyze SUITE --out analysis
bench advise MEASURED --mix resnet-train,resnet-infer --goal isolation
bench advise MEASURED --mix resnet-train,serve-200 --goal p99
bench advise MEASURED --mix llm-serve,llm-serve --goal goodput
bench advise MEASURED --mix notebook*4,resnet-train --goal answer
"""
BROKEN = re.compile(r"^\s*(%|min|GiB)(\s|$)", re.MULTILINE)  # a unit without its number


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with small files, and a terminal of 80 columns."""
    files = {"nodes.toml": NODES, "demand.toml": DEMAND, "study.toml": STUDY, "spec.toml": SPEC}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return tmp_path


def test_no_command_prints_a_line_that_is_wider_than_the_terminal(place, command):
    for line in LINES.strip().splitlines():
        done = command(*line.replace("SUITE", str(SUITE)).replace("MEASURED", str(MEASURED)).split())
        assert done.returncode in (0, 1), f"{line}\n{done.stderr}"
        for printed in (done.stdout + done.stderr).splitlines():
            assert len(printed) <= WIDTH, f"{line}\n{printed}"
        assert not re.search(r"\w…(\s|$)", done.stdout), line  # a text that is cut
        assert not BROKEN.search(done.stdout), f"{line}\n{BROKEN.search(done.stdout)}"


def every_command(app=cli.app, words=()):
    yield words
    for name in app:
        if not name.startswith("-"):
            yield from every_command(app[name], (*words, name))


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_help_fits_and_names_no_value_of_python(words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit, match="0"):
        cli.main([*words, "--help"])
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    assert not re.search(r'default: *(False|None|\(\)|""|\[\])', " ".join(text.split()))


def test_an_error_is_broken_between_words_and_what_may_be_copied_is_not(monkeypatch, capsys):
    from fleetlab._screen import complain

    monkeypatch.setenv("COLUMNS", "40")
    complain("a message of more words than fit into one line", f"sacct -o {'Field,' * 20}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: a message of more words than fit"
    assert f"  {'Field,' * 20}" in lines
