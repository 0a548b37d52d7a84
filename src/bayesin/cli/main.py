"""The command line: find the verb, parse its flags, run it, and turn errors into one line."""

import dataclasses
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..errors import BayesinError, ConfigError, did_you_mean, first_line
from .output import Output, warnings_in_one_line
from .signals import interrupted, made


class Verb(NamedTuple):
    """Where a verb lives; imported only when it is called, so that `bayesin --help` is quick."""

    target: str  # module:class, below bayesin.cli
    summary: str
    example: str
    compiles: bool = True  # programs, which are kept for its next start


# In the order a newcomer needs them.
VERBS = {
    "demo": Verb("demo:Demo", "train, align and measure on the embedded digits; write a page", "bayesin demo"),
    "try": Verb(
        "try_pair:Try",
        "two networks of your own: their symmetry, the barrier before and after, a page",
        "bayesin try a.safetensors b.safetensors --model net.py:model --data digits",
    ),
    "doctor": Verb(
        "doctor:Doctor", "check this machine and say how to mend what is missing", "bayesin doctor", compiles=False
    ),
    "data": Verb("data:Data", "list, fetch and check data sets", "bayesin data fetch mnist", compiles=False),
    "explain": Verb(
        "explain:Explain", "show a model's permutation symmetry and why axes are fixed", "bayesin explain resnet20"
    ),
    "train": Verb(
        "train:Train",
        "train posteriors or an ensemble into a run folder",
        "bayesin train --preset demo --members 2 --out runs/digits",
    ),
    "align": Verb(
        "align:Align",
        "move one posterior's units onto another's",
        "bayesin align runs/digits#0 runs/digits#1 --out runs/aligned",
    ),
    "barrier": Verb(
        "barrier:Barrier",
        "measure the loss on the way between two posteriors",
        "bayesin barrier runs/digits#0 runs/digits#1 --align --out runs/barrier",
    ),
    "merge": Verb(
        "merge:Merge",
        "merge posteriors into the one at their middle",
        "bayesin merge runs/digits#0 runs/digits#1 --out runs/merged",
    ),
    "compact": Verb(
        "compact:Fold",
        "fold an ensemble or HMC samples into one Gaussian",
        "bayesin compact runs/ensemble --out runs/one",
    ),
    "evaluate": Verb(
        "evaluate:Evaluate",
        "score predictions: accuracy, NLL, calibration, coverage; draw the curves",
        "bayesin evaluate runs/digits#0 --out runs/scores",
    ),
    "push": Verb(
        "hub:Push",
        "send posteriors and their card to the Hugging Face hub",
        "bayesin push runs/digits user/digits",
        compiles=False,
    ),
    "pull": Verb(
        "hub:Pull",
        "bring posteriors and their card from the Hugging Face hub, checked",
        "bayesin pull user/digits --out runs/theirs",
        compiles=False,
    ),
    "reproduce": Verb(
        "reproduce:Reproduce",
        "regenerate a figure of the papers, with a verdict on each claim",
        "bayesin reproduce kl --scale smoke",
    ),
    "status": Verb(
        "status:Status", "show every run and campaign: done, running, failed", "bayesin status runs", compiles=False
    ),
    "report": Verb(
        "report:Report",
        "write the page of one or several runs from their numbers",
        "bayesin report demo",
        compiles=False,
    ),
    "completion": Verb(
        "completion:Completion",
        "print a script with which your shell completes verbs and flags",
        "bayesin completion bash",
        compiles=False,
    ),
}


@dataclasses.dataclass(frozen=True)
class Common:
    """Flags that every verb has."""

    json: bool = False
    """Print the result as one JSON object."""
    quiet: bool = False
    """Print nothing but errors, and the JSON object where asked for."""
    debug: bool = False
    """Show the full traceback of an error."""


def main(argv: list[str] | None = None) -> int:
    """Runs one verb and returns the exit code: 0 done, 1 failed, 2 misuse, 130 interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    made.clear()
    try:
        with _terminated_is_interrupted():
            return _dispatch(argv)
    except BayesinError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail(interrupted(), 130)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # numpy's word for it, and JAX's
            return _fail(f"there is not memory enough: {first_line(error)}", 1)
        return _fail(f"unexpected {type(error).__name__}: {first_line(error)} (--debug shows the traceback)", 1)


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM, which a cluster sends, ends a verb as Ctrl-C does: in order, and with a message."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in {"-h", "--help", "help"}:
        return _end(_overview(Output()), 0)
    if argv[0] in {"-V", "--version"}:
        from .. import __version__

        out = Output()
        out.line(f"bayesin {__version__}")
        return _end(out, 0)
    _check_working_folder()
    if argv[0] not in VERBS:
        raise ConfigError(f"there is no verb '{argv[0]}'{did_you_mean(argv[0], VERBS) or ';'} 'bayesin' lists them")
    options = _parse(argv[0], argv[1:])
    out = Output(as_json=options.json, quiet=options.quiet)
    if VERBS[argv[0]].compiles:
        from ..lab.machine import use_compilation_cache

        use_compilation_cache()
    with warnings_in_one_line(out):
        result = options.run(out)
    out.result(result)
    return _end(out, int(result.get("exit_code", 0)) if isinstance(result, dict) else 0)


def _end(out: Output, code: int) -> int:
    """The exit code; where people could not be told everything, the work is done all the same."""
    trouble = out.finish()
    if trouble is None or isinstance(trouble, BrokenPipeError):  # who closed the pipe has read enough
        return code
    return _fail(f"cannot write to standard output: {trouble.strerror or trouble}; results are in their files", 1)


def _check_working_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        raise ConfigError("the working folder is gone; change into one that is there") from None


def load_verb(name: str) -> Any:
    """Imports the class of a verb."""
    module, attribute = VERBS[name].target.split(":")
    return getattr(importlib.import_module(f"bayesin.cli.{module}"), attribute)


def _parse(name: str, argv: list[str]) -> Any:
    try:
        import tyro  # noqa: F401
    except ImportError:
        raise ConfigError("the command line needs tyro: pip install tyro; the Python API works without it") from None
    from .parsing import parse

    return parse(name, load_verb(name), VERBS[name].example, argv)


def _overview(out: Output) -> Output:
    lines = ["bayesin: Bayesian posteriors in one basin", ""]
    lines += ["usage: bayesin VERB [options]      bayesin VERB --help", ""]
    for name, verb in VERBS.items():
        lines += [f"  {name:<10}  {verb.summary}", f"{'':<14}{verb.example}"]
    lines += ["", "Every verb takes --json, --quiet and --debug. bayesin --version prints the version."]
    for line in lines:
        out.line(line)
    return out


def _fail(message: str, code: int) -> int:
    Output().fail(message)
    return code


if __name__ == "__main__":
    sys.exit(main())
