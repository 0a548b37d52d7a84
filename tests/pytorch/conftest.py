"""PyTorch's own libraries at small sizes; `make test-torch` installs them and runs this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
torch = pytest.importorskip("torch", reason="pip install 'bayesin[torch]'")
DECLARED = []


@pytest.fixture(scope="session", autouse=True)
def _torchvision_without_compiled_operators():
    """torchvision's networks need none of its compiled operators, which some builds come without; their names do."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        for name in [module for module in sys.modules if module.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        DECLARED.append(library)  # what it declares lives as long as it does
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except ImportError:
        pass
