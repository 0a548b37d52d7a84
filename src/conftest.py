"""Examples in docstrings are tests; those of PyTorch's adapter need PyTorch (`make test-torch`)."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") and find_spec("torchax") else ["bayesin/models/torch.py"]
