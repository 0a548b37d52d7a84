"""Members, or the batch, over two devices give what one device gives."""

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import dataclasses, sys
import jax, numpy as np
sys.path.insert(0, sys.argv[1])
import training_toys as toys
from bayesin import VI, fit_vi

assert len(jax.devices()) == 2
key, parallel = jax.random.key(3), sys.argv[2]
model, data = (toys.convolution(), toys.images()) if parallel == "auto" else (toys.mlp(), toys.blobs())
base = VI(epochs=2, batch=20, learning_rate=1e-2, parallel=parallel)

def gap(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)

class Data:
    x_train, y_train = data
    x_test, y_test = data

three = dataclasses.replace(base, members=3, eval_every=1)  # three over two devices: the last lane is filled up
alone = fit_vi(key, model, Data, dataclasses.replace(three, shard="none"))
spread = fit_vi(key, model, Data, three)
print("members", gap(alone.posteriors, spread.posteriors), gap(alone.trace["test_nll"], spread.trace["test_nll"]))
alone = fit_vi(key, model, Data, dataclasses.replace(base, shard="none"))
spread = fit_vi(key, model, Data, base)
print("batch", gap(alone.posteriors, spread.posteriors), gap(alone.trace["loss"], spread.trace["loss"]))
try:
    fit_vi(key, model, Data, dataclasses.replace(base, batch=19))
except Exception as error:
    print("odd", type(error).__name__, "multiple" in str(error))
"""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["sequence", "vmap", "auto"])
def test_two_devices_are_one(parallel):
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), parallel]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {words[0]: words[1:] for words in (line.split() for line in done.stdout.splitlines())}
    # float32 sums in another order, over four or six steps of Adam
    assert all(float(gap) < 1e-5 for name in ("members", "batch") for gap in found[name])
    assert found["odd"] == ["ConfigError", "True"]
