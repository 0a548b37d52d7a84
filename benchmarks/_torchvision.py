"""torchvision where its compiled operators do not fit the torch that is installed.

Its wheels are built for CUDA and need the libraries of CUDA to load; beside a CPU build of torch they do not. Its
networks use none of those operators, but importing it asks for their names, so that these are declared here.
"""

import sys
from typing import Any

_declared: list[Any] = []  # what a library declares lives as long as it does


def import_torchvision() -> None:
    """Makes `import torchvision` work, if it is installed at all; timm imports it, too."""
    try:
        import torchvision  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        import torch  # pyright: ignore[reportMissingImports]

        for name in [module for module in sys.modules if module.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        _declared.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
