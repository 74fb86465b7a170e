"""Versions of installed packages, for manifests."""

from __future__ import annotations

from importlib import metadata


def package_version(package: str) -> str:
    """Version of a package, or that it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
