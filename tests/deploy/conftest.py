"""What is deployed, read once."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def deploy() -> Path:
    """The folder of images, manifests and scripts."""
    return ROOT / "deploy"


@pytest.fixture(scope="session")
def rendered(deploy):
    """All objects of a folder, as kustomize puts them together."""
    yaml = pytest.importorskip("yaml")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl, which has kustomize inside")
    kept = {}

    def render(folder):
        if folder not in kept:
            words = [kubectl, "kustomize", str(deploy / "kubernetes" / folder)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            kept[folder] = done.stdout
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where there is one
        return list(yaml.load_all(kept[folder], loader))

    return render


@pytest.fixture(scope="session")
def instructions():
    """A Dockerfile as (instruction, rest) in order, lines put together and comments left out."""

    def read(text):
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        whole = "\n".join(lines).replace("\\\n", " ").splitlines()
        return [(line.split(maxsplit=1)[0].upper(), line.split(maxsplit=1)[1].strip()) for line in whole]

    return read


@pytest.fixture(scope="session")
def entrypoint(deploy, instructions):
    """What an image runs, without what follows."""
    import json

    def words(image):
        name = image.rpartition("/")[2].partition(":")[0].removeprefix("fleetlab-")
        found = dict(instructions((deploy / "images" / f"{name}.Dockerfile").read_text("utf-8")))
        return json.loads(found["ENTRYPOINT"])

    return words
