"""`bayesin train`: posteriors of a network, in a run folder."""

import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..data import Dataset, is_data_file, load
from ..errors import ConfigError, did_you_mean
from ..inference import HMC, Progress
from ..lab.machine import use_one_thread
from ..lab.runs import (
    METHODS,
    RunConfig,
    RunOutcome,
    address_content,
    build_model,
    is_address,
    make_training,
    mixing_table,
    preset,
    run,
)
from ..models import WIDTHS
from .main import Common
from .output import Bar, Output
from .parsing import given_settings, settings_as_flags
from .signals import stoppable

_SETTINGS = tuple(method.settings for method in METHODS.values())
_Settings = settings_as_flags("_Settings", Common, *_SETTINGS)


@dataclass(frozen=True)
class Train(_Settings):  # pyright: ignore[reportGeneralTypeIssues]
    """Train mean-field posteriors or an ensemble, or sample by HMC, and write the result to a run folder.

    A preset gives the settings of the papers; every single one can be changed by its own flag. Running the same
    command again does nothing when it is done, and goes on where it was when it was stopped or killed.
    """

    data: str = "digits"
    """Data set: digits, mnist, fashion-mnist, cifar10, cifar100, or an .npz file."""
    model: Literal["mlp", "resnet20", "rnn", "lstm"] | str = "mlp"
    """Network: one of these, or your own as file.py:model or package.module:model."""
    width: int | None = None
    """Units of a hidden layer (mlp: 512) or of the state (rnn, lstm: 128); channels of the first stage (resnet20:
    16)."""
    depth: int | None = None
    """Hidden layers of an mlp (3)."""
    norm: Literal["layernorm", "frn"] = "layernorm"
    """Normalisation of resnet20."""
    preset: Literal["paper", "converged", "accurate", "demo"] | None = None
    """paper: SGD, stds stay near 0.01. converged: Adam, stds grow towards the prior. demo: the digits, T = 0.1."""
    method: Literal["vi", "ensemble", "hmc", "swag", "laplace", "sgmcmc"] = "vi"
    """Mean-field variational inference, a deep ensemble of maximum-a-posteriori networks, full-batch HMC, the
    Gaussian of the iterates of gradient descent (SWAG), Laplace's approximation, or stochastic-gradient chains
    (Langevin or Hamiltonian, with cycles)."""
    key: int = 0
    """Seed of everything that is random."""
    out: Path | None = None
    """Run folder; by default one under runs/ whose name carries the hash of the settings."""
    root: Path | None = None
    """Folder to look for data in first."""
    limit: int | None = None
    """Use so many examples of each of the training and the test set."""
    normalise: Literal["standard", "unit", "none"] = "standard"
    """Inputs with mean 0 and std 1, left between 0 and 1, or not touched (tokens)."""
    test_samples: int = 128
    """Weight samples of the final look at the test set."""
    wait: bool = False
    """Wait while another process works in the run folder, instead of leaving."""

    def run(self, out: Output) -> dict[str, Any]:
        data = self.data_file()
        config = self.config(data)
        if config.data == "digits" and config.model == "mlp" and (config.width or 512) <= 256:
            use_one_thread()
        folder = self.out if self.out is not None else Path("runs") / config.name
        with stoppable() as stop, ExitStack() as shown:
            bars: list[Bar] = []

            def begun(stage: str) -> None:  # data are read and the network is built: what can be refused has been
                if stage == "train":
                    out.line(f"{folder}: {_title(config)}")
                    bars.append(shown.enter_context(out.progress("train", None)))
                    bars[0].update(0, "compiling")

            def told(progress: Progress) -> None:
                _show(bars[0], progress)
                stop.check()

            done = run(
                config,
                folder,
                root=self.root,
                prepared=None if data is None else (data, build_model(config, data)),
                wait=self.wait,
                on_progress=told,
                on_stage=begun,
            )
        if done.reused:
            out.line(f"{folder}: {_title(config)}")
        _table(out, done)
        return {"folder": str(done.folder), "hash": config.hash, "reused": done.reused} | done.results | _times(done)

    def data_file(self) -> Dataset | None:
        """The data, where they are a file of the user's; None where their name says all about them."""
        if not is_data_file(self.data):
            return None
        return load(self.data, self.root, self.limit, normalise=self.normalise)

    def _check_model(self) -> None:
        if is_address(self.model) and (self.width, self.depth) != (None, None):
            raise ConfigError(f"--width and --depth are of the built-in networks; {self.model} has sizes of its own")
        if not is_address(self.model) and self.model not in WIDTHS:
            own = f"; choose {', '.join(WIDTHS)}, or your own: file.py:model"
            hint = own if self.model.endswith(".py") else did_you_mean(self.model, WIDTHS, 0.4) or own
            raise ConfigError(f"there is no model '{self.model}'{hint}")

    def config(self, data: Dataset | None = None) -> RunConfig:
        """The run that the flags describe; `data` are those of a file, whose content is part of it."""
        self._check_model()
        fields: dict[str, Any] = {} if self.preset is None else preset(self.preset, self.data, self.model)
        width, depth = fields.pop("width", None), fields.pop("depth", 3)
        known = {field.name for field in dataclasses.fields(METHODS[self.method].settings)}
        fields = {name: value for name, value in fields.items() if name in known}  # presets are written for vi
        if data is not None and data.classes is None:
            fields["likelihood"] = "gaussian"
        return RunConfig(
            data=self.data,
            model=self.model,
            training=make_training(self.method, fields | given_settings(self, *_SETTINGS)),
            key=self.key,
            width=self.width if self.width is not None else width,
            depth=self.depth if self.depth is not None else depth,
            norm=self.norm,
            limit=self.limit,
            normalise=self.normalise,
            test_samples=self.test_samples,
            data_content=None if data is None else data.content,
            model_content=address_content(self.model) if is_address(self.model) else None,
        )


def _title(config: RunConfig) -> str:
    training = config.training
    if isinstance(training, HMC):
        sampled = f"{training.chains} × {training.samples} HMC samples of {config.model} on {config.data}"
        return f"{sampled}, {training.iterations:,} iterations of {training.steps} steps"
    width = f" of width {config.width}" if config.width else ""
    what = "network" if config.method == "ensemble" else "chain" if config.method == "sgmcmc" else "posterior"
    what += "s" if training.members > 1 else ""
    rate = f"{training.optimiser} {training.learning_rate:g}"
    return f"{training.members} {what} of {config.model}{width} on {config.data}, {training.epochs} epochs of {rate}"


def _show(bar: Bar, progress: Progress) -> None:
    means = {name: float(np.mean(value)) for name, value in progress.row.items()}  # over members or chains
    if "acceptance" in means:
        error = float(np.abs(progress.row["energy_error"]).mean())
        note = f"acceptance {means['acceptance']:.2f}, energy error {error:.3g}"
    else:
        right = f", accuracy {means['accuracy']:.1%}" if "accuracy" in means else ""
        note = f"{means['steps_per_second']:,.0f} steps/s, loss {means['loss']:.3f}{right}"
    bar.update(progress.step, note, progress.steps)


def _table(out: Output, done: RunOutcome) -> None:
    results, rows = done.results, []
    for score in [*results["members"], *([results["ensemble"]] if "ensemble" in results else [])]:
        right, std = _shown(score.get("test_accuracy"), ".2%"), _shown(score.get("std_mean"), ".4f")
        loss = f"{_shown(score['test_nll'], '.4f')} ± {_shown(score['test_nll_error'], '.4f')}"
        rows.append([score.get("member", "all"), right, loss, std])
    out.table("", ["member", "test accuracy", "test loss (nats)", "mean std"], rows)
    if "chains" in results:
        _mixing(out, results["chains"])
    if "mixing" in results:
        out.table(*mixing_table(results["mixing"]))
    if (memory := results["memory"]) is not None:
        out.line(
            f"{results['weights']:,} weights; each member keeps {_bytes(memory['member'])} on the device while "
            f"it trains, a step needs {_bytes(memory['work'])} besides, the data {_bytes(memory['data'])}"
        )
    times = _times(done)["seconds"]
    took = f"{results['steps']:,} steps in {times['train']:.1f} s, the test set {times['test']:.1f} s"
    out.line(f"Done already ({took})" if done.reused else took)
    if done.unchecked:
        out.warn("this run is of a version that kept no content of its data; whether they are the same is not known")


def _mixing(out: Output, chains: dict[str, Any]) -> None:
    shares = ", ".join(_shown(share, ".2f") for share in chains["acceptance"])
    steps = ", ".join(_shown(step, ".3g") for step in chains["step_size"])
    known = {name: _shown(chains.get(name), ".4g") for name in ("rhat_max", "ess_min")}
    out.line(f"{chains['samples']} samples; accepted {shares} at step {steps}; of the predictions the largest R-hat")
    out.line(f"is {known['rhat_max']}, the smallest effective sample size {known['ess_min']}")


def _shown(number: float | None, how: str) -> str:
    """A number as text; a dash where there is none, or none that was finite."""
    return "–" if number is None else format(number, how)


def _times(done: RunOutcome) -> dict[str, Any]:
    times = done.provenance
    return {"seconds": {"train": times["train_seconds"], "test": times["test_seconds"]}}


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
