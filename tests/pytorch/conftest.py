"""PyTorch's own libraries at small sizes; `make test-torch` installs them and runs this folder."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="pip install 'bayesin[torch]'")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]


@pytest.fixture(scope="session", autouse=True)
def _torchvision_without_compiled_operators():
    from _torchvision import import_torchvision

    import_torchvision()
