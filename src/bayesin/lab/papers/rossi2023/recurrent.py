"""Recurrent networks, which the paper names as future work: MNIST read row by row by a tanh cell and by an LSTM.

One permutation moves the units of the state, and with them both sides of the recurrent kernel, so that a step of the
alignment is quadratic in it. Units behind tanh may also flip their sign, a symmetry that permutations leave alone.
"""

from collections.abc import Sequence
from typing import Any

from ...campaign import Task, neighbours
from ...runs import RunConfig, make_training, preset
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind
from ..verdicts import accuracies, barriers_of, format_mean_std, heights, lost_on_the_way, verdict_of_zero
from .variational_pairs import SIZES, network_of, preset_of, width_of

CELLS = ("rnn", "lstm")
CASES = {  # (units, preset): the paper's rule at two widths, the converged one at the smaller
    "smoke": ((16, "converged"),),
    "cpu": ((32, "paper"), (32, "converged")),
    "paper": ((128, "paper"), (128, "converged"), (512, "paper")),
}
MEMBERS = {"smoke": 2, "cpu": 2, "paper": 4}
EPOCHS = {"smoke": 20, "cpu": 30, "paper": 60}
SAMPLES = {"smoke": 8, "cpu": 16, "paper": 64}
RESTARTS = 4  # one group on both sides of a kernel has many local minima


def tasks(scale: str) -> list[Task]:
    fineness = {"samples": SAMPLES[scale], "taus": 9, "train_samples": 0, "restarts": RESTARTS}
    return [
        pair
        for model in CELLS
        for width, named in CASES[scale]
        for pair in neighbours(_posteriors(scale, model, width, named), **fineness)
    ]


def _posteriors(scale: str, model: str, width: int, named: str) -> RunConfig:
    small = {"batch": 100} if scale == "smoke" else {}
    fields = preset(named, "mnist", model) | small | {"epochs": EPOCHS[scale]}
    return RunConfig(
        data="digits" if scale == "smoke" else "mnist",
        model=model,
        training=make_training("vi", fields | {"members": MEMBERS[scale]}),
        width=width,
        limit=SIZES[scale].limit,
        test_samples=SAMPLES[scale],
    )


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for title, pairs in grouped(of_kind(records, "pair"), _case_of).items():
        barriers = barriers_of(pairs)
        ours = (
            f"{heights(barriers)}, test accuracy {format_mean_std(accuracies(pairs), 2)} %, of which the path loses "
            f"{lost_on_the_way(pairs)}"
        )
        claim = f"{title}: no barrier after alignment"
        findings.append(Finding(claim, "left to future work", ours, *verdict_of_zero(barriers)))
    return findings


def draw(figure: Any, records: Sequence[Record]) -> None:
    cases = grouped(of_kind(records, "pair"), _case_of)
    titled = {title.replace(", `", "\n").strip("`"): pairs for title, pairs in cases.items()}
    drawing.curves_of_cases(figure, titled, one_scale=True)


def _case_of(pair: Record) -> str:
    return f"{network_of(pair)}, {width_of(pair):g} units, `{preset_of(pair)}`"


RECURRENT = Reproduction(
    name="recurrent",
    source="Rossi et al. 2023, left to future work",
    claim="alignment removes the barrier between posteriors of recurrent networks",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.5, "cpu": 15, "paper": 6},
    choices=(
        "MNIST row by row, 28 steps of 28 pixels; presets of the MLP with gradients clipped at 1, 60 epochs",
        f"the best of {RESTARTS} starts of the alignment; neighbouring members are paired",
    ),
    size=(9.6, 2.8),
)
