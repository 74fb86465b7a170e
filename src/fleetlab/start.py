"""The program `fleetlab`: the version and the first help at once, all else by the command line."""

import sys


def main() -> None:
    """Run a command."""
    words = sys.argv[1:]
    if words in ([], ["--help"], ["-h"], ["help"], ["--version"], ["version"]):
        if hasattr(sys.stdout, "reconfigure"):  # a terminal may not have all characters
            sys.stdout.reconfigure(errors="backslashreplace")
        if words and words[0].endswith("version"):
            from importlib.metadata import version

            print(version("fleetlab"))
        else:
            from fleetlab.commands.first_help import overview

            print(overview())
        return
    from fleetlab.cli import main as run

    run(words)


if __name__ == "__main__":
    main()
