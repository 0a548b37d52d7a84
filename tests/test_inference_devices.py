"""Members, or the batch, over two devices give what one device gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
from dataclasses import replace
import jax, numpy as np
sys.path.insert(0, sys.argv[1])
import training_toys as toys
from bayesin import VI, fit_vi

assert len(jax.devices()) == 2
key, x, y = jax.random.key(3), *toys.blobs()

class Data:
    x_train, y_train = x, y
    x_test, y_test = x, y

def gap(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)

def compare(name, alone, spread, members=slice(None)):
    seen = [gap(alone.trace[c][:, members], spread.trace[c]) for c in ("loss", "test_nll") if c in spread.trace]
    print(name, gap(alone.posteriors[members], spread.posteriors), *seen)

# three members over two devices: the last lane is filled up
three = VI(epochs=2, batch=20, learning_rate=1e-2, members=3, eval_every=1)
alone = fit_vi(key, toys.mlp(), Data, replace(three, shard="none", parallel="sequence"))
compare("sequence", alone, fit_vi(key, toys.mlp(), Data, replace(three, parallel="sequence")))
unseen = replace(three, eval_every=0)
compare("vmap", alone, fit_vi(key, toys.mlp(), (x, y), replace(unseen, parallel="vmap")))
# one member, which is the first of the three, with its batch over both
one = replace(unseen, members=1)
compare("batch", alone, fit_vi(key, toys.mlp(), (x, y), one), slice(1))
alone = fit_vi(key, toys.convolution(), toys.images(), replace(one, shard="none"))
compare("convolution", alone, fit_vi(key, toys.convolution(), toys.images(), one))
try:
    fit_vi(key, toys.mlp(), (x, y), replace(one, batch=19))
except Exception as error:
    print("odd", type(error).__name__, "multiple" in str(error))
"""


@pytest.mark.slow
def test_two_devices_are_one():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = dict(os.environ) | {"XLA_FLAGS": flags}
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {words[0]: words[1:] for words in (line.split() for line in done.stdout.splitlines())}
    assert found.pop("odd") == ["ConfigError", "True"]
    assert set(found) == {"sequence", "vmap", "batch", "convolution"}
    # float32 sums in another order, over four or six steps of Adam
    assert all(float(gap) < 1e-5 for gaps in found.values() for gap in gaps), found
