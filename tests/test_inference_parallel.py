"""Where members are computed: lanes on one device and on several."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import VI
from bayesin.errors import ConfigError
from bayesin.inference.parallel import Arrangement, arrange, collect, place

CPU = [SimpleNamespace(platform="cpu")]
GPU = [SimpleNamespace(platform="gpu")]


@pytest.mark.parametrize(
    "devices, convolutional, parallel, width",
    [
        (CPU, False, "auto", 1), (CPU, False, "vmap", 5), (GPU, False, "auto", 5),
        (GPU, True, "auto", 1), (GPU, True, "vmap", 5), (GPU, False, "sequence", 1),
    ],
)  # fmt: skip
def test_one_device(devices, convolutional, parallel, width):
    found = arrange(VI(parallel=parallel), 5, convolutional, devices)
    assert found.width == width and found.mesh is None and found.lanes == (1 if width == 5 else 5)


def test_members_come_back_in_order():
    trees = [{"a": jnp.full(2, i), "b": jnp.asarray(i)} for i in range(5)]
    for width in (1, 2, 5):
        arrangement = Arrangement(5, width)
        lanes = place(arrangement, trees)
        assert len(lanes) == arrangement.lanes == -(-5 // width)
        back = collect(arrangement, lanes)
        np.testing.assert_array_equal(back["b"], np.arange(5))
        np.testing.assert_array_equal(back["a"], np.arange(5)[:, None].repeat(2, 1))


def test_batch_that_cannot_be_spread_is_refused():
    devices = jax.devices() * 2
    with pytest.raises(ConfigError, match="multiple"):
        arrange(VI(batch=5, shard="batch"), 1, False, devices)
    assert arrange(VI(shard="none"), 3, False, devices).mesh is None
