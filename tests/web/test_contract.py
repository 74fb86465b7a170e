"""The interface asked by Schemathesis, which draws requests from its description, good and bad."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import started

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)


@pytest.fixture
def page(root):
    """A page where a computation may take as long as compiling: Schemathesis tries every order and backfill rule."""
    with started("--traces", root, "--limit", 55) as client:
        yield client


@pytest.mark.validate
def test_no_request_that_schemathesis_draws_is_a_stumble_or_answered_otherwise_than_described(page, tmp_path):
    program = shutil.which("schemathesis", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("no schemathesis: pip install schemathesis")
    words = ["run", f"{page.url.rstrip('/')}/api/openapi.json", "--no-color", "--request-timeout", "60", "--seed", "1"]
    words += ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--checks", ",".join(CHECKS)]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert "API Operations:\n  Selected: 17/17" in done.stdout
    assert done.returncode == 0, done.stdout[-6000:]
