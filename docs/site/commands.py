"""Pages of the commands, made from the command line's own help."""

from __future__ import annotations

import re
from functools import cache

from cyclopts import App

from fleetlab.cli import app

PAGE = "reference/commands/{}.md"
RUN_AS = re.compile(r"(?<=\w) -m mkdocs\b")  # usage lines keep a part of how the program was started
HEADING = re.compile(r"^(#+) fleetlab ([\w ]+)$", re.MULTILINE)


@cache
def help_text() -> str:
    """Return the help of all commands."""
    text = app.generate_docs(output_format="markdown", recursive=True, usage_name="fleetlab")
    return RUN_AS.sub("", text)


def pages() -> dict[str, str]:
    """Return a page for each command, with those below it."""
    _, *sections = re.split(r"^(?=## fleetlab )", help_text(), flags=re.MULTILINE)
    return {PAGE.format(section.split()[2]): page(section) for section in sorted(sections)}


def names() -> list[str]:
    """Return the commands, those below others too: `bench mig check`."""
    return [name for _, name in HEADING.findall(help_text())]


def page(section: str) -> str:
    """Return a command's part of the help as a page: headings one level up, examples at the end of each."""
    parts = re.split(r"^(?=#+ fleetlab )", section, flags=re.MULTILINE)
    return "\n".join(entry(part) for part in parts if part)


def entry(part: str) -> str:
    """Return one command: its help, with its examples."""
    heading, _, rest = part.partition("\n")
    words = heading.split()[2:]
    body = rest.replace("```console\n", "```text\n").rstrip() + "\n"
    return f"{heading.removeprefix('#')}\n{body}\n{examples(words)}"


def examples(words: list[str]) -> str:
    """Return the examples of a command's help."""
    command: App = app
    for word in words:
        command = command[word]
    lines = (command.help_epilogue or "").replace("Examples:", "").strip("\n")
    if not isinstance(command.help_epilogue, str) or not lines:
        return ""
    lines = "\n".join(line[2:] for line in lines.splitlines() if line.strip())
    return f"**Examples**:\n\n```bash\n{lines}\n```\n"
