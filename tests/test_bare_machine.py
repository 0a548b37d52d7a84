"""A machine with nothing but JAX, flax, optax, equinox, orbax, safetensors, scipy, numpy and rich.

Training, matching, campaigns and reproductions work there; what is missing is asked for only where it is used.
"""

import subprocess
import sys
import textwrap

MISSING = (
    "tyro",
    "lap",
    "lapx",
    "blackjax",
    "plotly",
    "ray",
    "matplotlib",
    "sklearn",
    "requests",
    "filelock",
)

PROGRAM = """
import sys, warnings
from pathlib import Path

sys.modules.update(dict.fromkeys({missing!r}))  # neither imported nor found

import jax, numpy as np
import bayesin
from bayesin.lab.runs import RunConfig, make_training
from bayesin.lab.campaign import neighbours, ledgers, read_campaign, run_local, write_ledger
from bayesin.matching.assignment import solver_name
from bayesin.lab.papers import read_reproduction, reproduce

assert solver_name().startswith("scipy"), solver_name()
x = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0)
np.savez("mine.npz", x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:])
fields = dict(members=2, epochs=3, batch=30)
config = RunConfig("mine.npz", "mlp", make_training("vi", fields), width=8, depth=2, test_samples=4)
tasks = neighbours(config, samples=4, taus=3)
write_ledger("mine", tasks, Path("runs"))
found = run_local(tasks, "runs")
assert {{one.state for one in found.values()}} == {{"done"}}, found
assert [read_campaign(path) for path in ledgers("runs")][0].counts["done"] == 2
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    reproduce("kl", runs="runs", out="kl")
assert sorted(path.name for path in Path("kl").iterdir()) == ["kl.json", "report.json"]
assert read_reproduction("kl/kl.json")["records"][0]["state"] == "done"
print("figure:", *(one.message for one in said))
try:
    bayesin.data.load("digits")
except bayesin.errors.BayesinError as error:
    print("digits:", error)
try:
    bayesin.fit_hmc(jax.random.key(0), None, (x, y), bayesin.HMC(samples=1, burn_in=0, steps=1))
except bayesin.errors.BayesinError as error:
    print("hmc:", error)
print("all well")
"""


def test_training_matching_campaigns_and_reproductions_need_only_the_core(tmp_path):
    program = textwrap.dedent(PROGRAM).format(missing=set(MISSING))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    figure, digits, hmc, last = done.stdout.splitlines()
    assert figure == "figure: no figure is drawn: pip install matplotlib"
    assert "pip install scikit-learn" in digits and "pip install blackjax" in hmc and last == "all well"
