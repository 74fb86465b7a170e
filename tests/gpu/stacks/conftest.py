"""Specs by chance, and files of strangers."""

import pytest


@pytest.fixture
def written(tmp_path):
    """A file with that text."""

    def write(text, name="file.yaml"):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write
