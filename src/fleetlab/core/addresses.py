"""The words of a scenario in the query of an address or in a file: which of them name files of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fleetlab.core.errors import WorkloadError
from fleetlab.core.names import clip
from fleetlab.core.schedulers import names_alone
from fleetlab.core.word_values import OWN_NAME
from fleetlab.core.words import EVENT, SHIPPED, SITE, WORDS, check

LONGEST = 8_000  # characters of an address


def _is_name(word: str, value: str) -> bool:
    """Whether a value of a word that may be a file is none."""
    return word == "scheduler" and value in (SITE, EVENT, *names_alone())


def query_pairs(query: str) -> list[tuple[str, str]]:
    """Split the query of an address into names and values, or say what is wrong with it."""
    if len(query) > LONGEST:
        raise WorkloadError(f"an address has at most {LONGEST:,} characters, not {len(query):,}")
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=200, errors="strict")
    except ValueError:
        msg = f"not the query of an address: `{clip(query)}`"
        raise WorkloadError(msg, hint="WORD=VALUE separated by &, such as order=sjf&load=1.2") from None


def query_words(query: str, *, local: bool = True, trace: bool = True) -> dict[str, Any]:
    """Return the words of an address as text, its `trace` too or not, or say what is wrong with it."""
    pairs = query_pairs(query)
    check(name for name, _ in pairs)
    words = {name: value for name, value in pairs if trace or name != "trace"}
    if len(dict(pairs)) < len(pairs):
        msg = f"a word is given twice: `{clip(query)}`"
        raise WorkloadError(msg, hint="one value per word; edits of nodes are separated by commas: T4 +20, V100 -25%")
    for name, value in words.items():
        if not local and names_local(name, value):
            msg = f"this page cannot read files or code from disk: `{name}={clip(value)}`"
            raise WorkloadError(msg, hint="upload slurm.conf with your log instead, or run it on the command line")
    return words


def names_local(name: str, value: str) -> bool:
    """Whether the text of a word names a file or code of the machine that reads it."""
    word = WORDS[name]
    if _is_name(name, value):
        return False
    if word.menu is not None:
        return value not in word.menu and (":" in value or (word.local and bool(value)))
    if name == "trace":
        return value.split(":")[0] not in SHIPPED
    if name == "cluster":
        return bool(value)  # it has no inline form: whatever it begins with, it is the name of a file
    return word.local and bool(value) and not value.lstrip().startswith(("{", "["))


def beside(words: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the words with the files that they name looked for in a folder."""
    return {name: _beside(name, value, folder) for name, value in words.items()}


def _beside(name: str, value: Any, folder: Path) -> Any:  # noqa: ANN401
    if not (name in WORDS and WORDS[name].local and isinstance(value, str) and value):
        return value
    inline = value.lstrip().startswith(("{", "["))
    named = (name == "trace" and value.split(":")[0] in SHIPPED) or (name == "speed" and not value.endswith(".json"))
    own = name == "scheduler" and OWN_NAME.fullmatch(value) is not None
    return value if inline or named or own or _is_name(name, value) else str(folder / value)
