"""PyTorch in, PyTorch out, where torch is installed; networks of its libraries are in `pytorch/`."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import Ensemble, discover, fit_ensemble, models, recalibrate
from bayesin.errors import LeftBehindWarning, ModelError
from bayesin.trees import flatten

pytestmark = pytest.mark.promotes
KEY = jax.random.key(0)
STATISTICS = ("running_mean", "running_var")
WITHOUT = "torch and torchax are not installed: pip install 'bayesin[torch]'"


def test_without_pytorch_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"pip install 'bayesin\[torch\]'"):
        models.from_torch(object(), np.ones((1, 3)))


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason=WITHOUT)


@pytest.fixture(scope="module")
def net(torch):
    """Convolution, BatchNorm, dropout, and two tied layers."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4)
            self.drop = torch.nn.Dropout(0.5)
            self.first = torch.nn.Linear(4, 4, bias=False)
            self.second = torch.nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight
            self.out = torch.nn.Linear(4, 3)
            self.register_buffer("shift", torch.ones(3))
            self.register_buffer("scratch", torch.full((3,), 2.0), persistent=False)

        def forward(self, x, *, scale=None):
            x = self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3))
            x = self.second(torch.relu(self.first(x)))
            x = (self.out(x) + self.shift) * self.scratch
            return x if scale is None else x * scale

    torch.manual_seed(0)
    return Net()


X = np.random.default_rng(0).normal(size=(20, 1, 6, 6)).astype(np.float32)


def test_evaluation_training_and_gradients_are_pytorchs_own(torch, net):
    net = net.train()
    net.drop.p = 0.0
    model = models.from_torch(net, X[:2])
    params = model.init(KEY)
    assert set(flatten(params)) == {
        "conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "first.weight", "out.weight", "out.bias", "shift",
    }  # fmt: skip
    assert model.statistics == {"norm.running_mean", "norm.running_var", "shift"}

    outputs, after = jax.jit(model.apply_train)(params, X, KEY)
    loss = lambda params: jnp.square(model.apply_train(params, X, KEY)[0]).mean()  # noqa: E731
    slopes = jax.jit(jax.grad(loss))(params)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    theirs = net(torch.tensor(X))
    theirs.square().mean().backward()
    np.testing.assert_allclose(outputs, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(slopes[name], parameter.grad.numpy(), rtol=1e-3, atol=1e-5)
    for name in ("norm.running_mean", "norm.running_var"):
        np.testing.assert_allclose(after[name], net.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after["shift"], 1)

    with torch.no_grad():
        expected = net.eval()(torch.tensor(X)).numpy()
    np.testing.assert_allclose(model.apply(after, X), expected, rtol=1e-4, atol=1e-5)
    net.load_state_dict(state)
    net.drop.p = 0.5


def test_a_state_dict_comes_back_strictly_with_both_names_of_a_tied_weight(torch, net):
    model = models.from_torch(net, X[:2])
    params = jax.tree.map(lambda leaf: leaf + 1, model.init(KEY))
    state = models.to_torch(params, net)
    assert set(state) == set(net.state_dict()) and state["norm.num_batches_tracked"].dtype == torch.int64
    np.testing.assert_array_equal(state["first.weight"].numpy(), state["second.weight"].numpy())
    np.testing.assert_array_equal(state["first.weight"].numpy(), params["first.weight"])
    for broken, message in (
        ({**params, "more": np.ones(3)}, "'more' is unknown"),
        ({name: leaf for name, leaf in params.items() if name != "out.bias"}, "'out.bias' is missing"),
        ({**params, "out.bias": np.ones(7)}, "shape"),
    ):
        with pytest.raises(ModelError, match=message):
            models.to_torch(broken, net)


def test_a_part_with_two_names_is_one_part_in_every_call(torch):
    """As the embedding of an encoder and a decoder; here with running statistics, which are one part's, too."""
    first, second, head = (torch.nn.Linear(3, 3, bias=False) for _ in range(3))
    head.weight = first.weight
    norm = torch.nn.BatchNorm1d(3)
    net = torch.nn.Sequential(torch.nn.Sequential(first, norm), second, torch.nn.Sequential(first, norm), head).eval()
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    model = models.from_torch(net, x)
    params = model.init(KEY)
    assert set(params) == {"0.0.weight", "1.weight", *(f"0.1.{n}" for n in ("weight", "bias", *STATISTICS))}
    for _ in range(2):
        with torch.no_grad():
            np.testing.assert_allclose(model.apply(params, x), net(torch.tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
    state = models.to_torch(jax.tree.map(lambda leaf: leaf + 1, params), net)
    net.load_state_dict(state, strict=True)
    for name in ("weight", *STATISTICS):
        np.testing.assert_array_equal(state[f"2.1.{name}"].numpy(), params[f"0.1.{name}"] + 1)


def test_fits_train_in_training_mode_with_fresh_members_and_dropout(torch, net):
    labels = (np.arange(len(X)) % 3).astype(np.int32)
    kind = type(net)
    model = models.from_torch(lambda: kind(), X[:2])
    fit = fit_ensemble(KEY, model, (X, labels), Ensemble(members=2, epochs=3, batch=10))
    found = fit.posterior.params
    assert not np.allclose(found["conv.weight"][0], found["conv.weight"][1])
    assert np.abs(found["norm.running_mean"]).max() > 1e-3 and np.array_equal(found["shift"], np.ones((2, 3)))
    one, other = (model.apply_train(fit.posterior[0], X, jax.random.key(seed))[0] for seed in (1, 2))
    assert not np.allclose(one, other)
    again = recalibrate(fit.posterior[0], model, X, key=KEY)
    first = torch.nn.functional.conv2d(
        torch.tensor(X), *(torch.tensor(np.array(again[name])) for name in ("conv.weight", "conv.bias"))
    )
    np.testing.assert_allclose(again["norm.running_mean"], first.mean((0, 2, 3)).numpy(), rtol=1e-3, atol=1e-4)
    held = models.from_torch(_with_frozen_norm(net), X[:2])
    params = held.init(KEY)
    kept = held.apply_train(params, X, KEY)[1]["norm.running_mean"]
    np.testing.assert_array_equal(kept, params["norm.running_mean"])


def _with_frozen_norm(net):
    net = net.train()
    net.norm.eval()
    return net


def test_keyword_inputs_several_inputs_and_bfloat16(torch, net):
    net = net.eval()
    model = models.from_torch(net, {"x": X[:2], "scale": np.full((2, 1), 3.0, np.float32)})
    params = model.init(KEY)
    plain = models.from_torch(net, X[:2])
    three = model.apply(params, {"x": X, "scale": np.full((20, 1), 3.0, np.float32)})
    np.testing.assert_allclose(three, 3 * plain.apply(params, X), rtol=1e-5, atol=1e-6)
    two = models.from_torch(torch.nn.Bilinear(3, 4, 2), (torch.ones(1, 3), torch.ones(1, 4)))
    assert two.apply(two.init(KEY), (np.ones((5, 3), np.float32), np.ones((5, 4), np.float32))).shape == (5, 2)
    half = torch.nn.Linear(3, 2).bfloat16()
    model = models.from_torch(half, torch.ones(1, 3, dtype=torch.bfloat16))
    params = model.init(KEY)
    assert params["weight"].dtype == jnp.bfloat16
    back = models.to_torch(params, half)
    assert back["weight"].dtype == torch.bfloat16 and torch.equal(back["weight"], half.weight)


def test_what_cannot_be_traced_is_one_line_that_names_the_place(torch):
    class Picky(torch.nn.Module):
        def forward(self, x):
            return x[x > 0]

    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    class Pair(torch.nn.Module):
        def forward(self, x):
            return x, x

    for part, message in (
        (Picky(), "'1' a shape or a branch depends on the data"),
        (Branching(), "'1' a shape or a branch depends on the data"),
        (Pair(), "returns tuple, not one tensor; choose: output="),
    ):
        with pytest.raises(ModelError, match=message):
            models.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 3), part), torch.ones(2, 3))
    tracked = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.InstanceNorm1d(3, track_running_stats=True))
    model = models.from_torch(tracked, torch.ones(2, 3, 3))
    with pytest.raises(ModelError, match=r"'1.running_mean' of InstanceNorm1d is not collected"):
        model.apply_train(model.init(KEY), jnp.ones((2, 3, 3)), KEY)
    with pytest.raises(ModelError, match="takes an nn"):
        models.from_torch(3, np.ones((1, 3)))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_mistakes_are_one_line_that_says_where(torch):
    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    class Leaving(torch.nn.Module):
        def forward(self, x):
            return torch.tensor(x.detach().numpy())

    linear, two = torch.nn.Linear(3, 3), torch.ones(2, 3)
    norm = torch.nn.Sequential(linear, torch.nn.BatchNorm1d(3))
    model = models.from_torch(norm, two)
    params = model.init(KEY)
    for wrong, message in (
        (lambda: models.from_torch(norm, torch.ones(2, 5)), r"failed in '0', on an input of shape \(2, 5\)"),
        (lambda: models.from_torch(norm, "abc"), "the example holds <U3, not numbers"),
        (lambda: models.from_torch(norm, {"y": two}), "in its forward, .*unexpected keyword argument 'y'"),
        (lambda: models.from_torch(torch.nn.Sequential(linear, Unknown()), two), "operator in '1': .*airy_ai"),
        (lambda: models.from_torch(torch.nn.Sequential(linear, Leaving()), two), "in '1' a tensor is taken to NumPy"),
        (lambda: models.from_torch(torch.jit.trace(linear, two), two), "TorchScript no longer has"),
        (lambda: models.from_torch(torch.nn.ReLU(), two), "no floating-point parameters"),
        (lambda: model.apply_train(params, np.ones((1, 3), np.float32), KEY), "'1', .*batch statistics of one value"),
        (lambda: model.apply({**params, "1.num_batches_tracked": np.ones(())}, two.numpy()), "tracked' is unknown"),
        (lambda: models.to_torch(params, 3), "takes the nn.Module"),
        (lambda: models.to_torch({k: v for k, v in params.items() if k != "1.running_var"}, norm), "var' is missing"),
    ):
        with pytest.raises(ModelError, match=message) as error:
            wrong()
        assert "\n" not in str(error.value)


def test_what_no_mode_reads_is_named_and_running_statistics_move(torch):
    """A mask token and a moving average have the size of the hidden units, and the output needs neither."""

    class Pretrained(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
            self.mask_token = torch.nn.Parameter(torch.zeros(8))
            self.register_buffer("first_ema", torch.zeros(8, 3))

        def forward(self, x):
            return self.last(torch.relu(self.norm(self.first(x))))

    model, x = models.from_torch(Pretrained(), torch.ones(2, 3)), np.ones((2, 3), np.float32)
    params = model.init(KEY)
    with pytest.warns(LeftBehindWarning, match="2 parameters .*'first_ema' .*'mask_token'"):
        spec = discover(model.apply, params, x)
    assert ("norm.running_var", 0, 0) in spec.touched_by("g0") and "norm.num_batches_tracked" not in spec.axes
    with pytest.warns(LeftBehindWarning, match="4 parameters .*'norm.running_mean' .*'norm.running_var'"):
        discover(lambda params, x: model.apply_train(params, x, KEY)[0], params, x)


def test_a_torch_module_has_an_address(torch, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))\n"
        "pair = model, torch.ones(2, 4)\n"
    )
    monkeypatch.chdir(tmp_path)
    alone = models.load("mine.py:model", key=KEY, input_shape=(4,))
    both = models.load("mine.py:pair", key=KEY)
    assert set(alone.params) == {"0.weight", "0.bias", "2.weight", "2.bias"} == set(both.params)
    assert both.apply(both.params, both.x).shape == (2, 3)
