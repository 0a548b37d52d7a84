"""A run: from a config to a folder with posteriors and numbers, done once.

    config.json                what was asked for
    provenance.json            versions, device, commit, times, status: running, done, failed or interrupted
    metrics.jsonl              the trace, a line for each logging interval, written as training goes on
    posterior-0.safetensors …  one for each member; an ensemble is one file with all members
    results.json               scores on the test set, for each member
    checkpoints/               while it is not done

`done` is written last: a folder without it is taken up where it was, one with it is left alone. A folder that bears
the name of its run, which holds the hash of its config, can be of no other: damage there is work not done, elsewhere
it is an error.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..data import Dataset, load
from ..errors import ArtifactError, BayesinError, ConfigError, TrainingError
from ..evaluation import Normal, evaluate
from ..evaluation.metrics import accuracy
from ..files import read_json, remove_leftovers, write_json
from ..inference import HMC, VI, Fit, Progress, fit_ensemble, fit_hmc, fit_vi
from ..models import Model
from ..posteriors import Gaussian, Samples
from ..store import save_posterior
from ..trees import flatten
from .config import RunConfig, build_model, differences
from .lock import locked
from .metrics import append_metrics, plain, rows_of, write_metrics
from .provenance import now, provenance

MEMBERS = "members.json"  # names of the runs that share a checkpoint
TEST = 0x7E57  # stream of the final look at the test set


class Outcome(NamedTuple):
    """What a run left behind."""

    folder: Path
    results: dict[str, Any]
    provenance: dict[str, Any]
    reused: bool  # it was done already


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    root: Path | str | None = None,
    prepared: tuple[Dataset, Model] | None = None,
    wait: bool = False,
    on_progress: Callable[[Progress], Any] | None = None,
    on_stage: Callable[[str], Any] | None = None,
) -> Outcome:
    """Does a run, or goes on with it, or returns what it found when it was done.

    Args:
        config: what to do.
        folder: where; made where needed. A folder of another run is refused.
        root: where to look for data first.
        prepared: data and network, where they are at hand.
        wait: wait while another process works in the folder, instead of leaving.
        on_progress: called after every logging interval. Raising KeyboardInterrupt there saves a checkpoint.
        on_stage: called with "load", "train", "test" and "save" as they begin.

    Raises:
        ConfigError: the folder holds another run.
        LockedError: another process works in the folder.
        TrainingError: the loss diverged; the folder keeps the trace and says so.
    """
    folder, tell = Path(folder), on_stage or (lambda stage: None)
    _check_folder(config, folder)
    found = _found(config, folder)
    if found is not None and not os.access(folder, os.W_OK):  # kept where none can write
        return found
    # Before the folder is made, so that a misspelt data set leaves nothing behind.
    ready = prepared
    if ready is None and found is None:
        ready = _prepare(config, root, tell)
    with locked(folder, wait=wait):
        _check_folder(config, folder)
        remove_leftovers(folder)
        if (found := _found(config, folder)) is not None:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            return found
        record = _begin(config, folder)
        data, model = ready or _prepare(config, root, tell)
        try:
            tell("train")
            fit = _fit(config, folder, model, data, on_progress)
            return _finish(config, folder, data, model, fit, record, tell)
        except (Exception, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            if isinstance(error, TrainingError) and error.trace is not None:
                write_metrics(folder, rows_of(error.trace))
            how = {"status": "interrupted"} if stopped else {"status": "failed", "error": reason(error)}
            write_json(folder / "provenance.json", record | how | {"ended": now()})
            raise


def run_together(
    configs: Sequence[RunConfig],
    folders: Sequence[Path],
    *,
    prepared: tuple[Dataset, Model],
    on_progress: Callable[[Progress], Any] | None = None,
) -> None:
    """Trains variational runs of one shape in one program; each leaves the folder that `run` would have left.

    Done ones are left out. The checkpoint is shared and lies beside the folders, whose trace is written at the end.

    Raises:
        TrainingError: one of them diverged. Nothing is recorded, as nothing is known of the others; run each alone.
    """
    with ExitStack() as stack:
        for folder in sorted(folders):  # in one order, so that two processes cannot hold what the other waits for
            stack.enter_context(locked(folder, wait=True))
        todo = [pair for pair in zip(configs, folders, strict=True) if _found(*pair) is None]
        if not todo:
            return
        records = [_begin(config, folder) | {"together": len(todo)} for config, folder in todo]
        settings = [config.training for config, _ in todo if isinstance(config.training, VI)]
        name = hashlib.sha256(" ".join(config.hash for config, _ in todo).encode()).hexdigest()[:10]
        shared = folders[0].parent / f".together-{name}"
        _remove_overtaken(shared, [folder.name for folder in folders])
        write_json(shared / MEMBERS, [folder.name for _, folder in todo])
        options: dict[str, Any] = {"checkpoint": shared / "checkpoints", "on_progress": on_progress}
        try:
            fits = fit_vi(jax.random.key(configs[0].key), prepared[1], prepared[0], settings, **options)
            for (config, folder), fit, record in zip(todo, fits, records, strict=True):
                _finish(config, folder, *prepared, fit, record, lambda stage: None)
        except ArtifactError:  # a full disk: what was trained is kept
            raise
        except Exception:
            shutil.rmtree(shared, ignore_errors=True)
            raise
        shutil.rmtree(shared, ignore_errors=True)


def reason(error: BaseException) -> str:
    """What a record says of an exception, in a line: ours speak for themselves, others are called by their kind."""
    if isinstance(error, BayesinError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _remove_overtaken(shared: Path, held: Sequence[str]) -> None:
    """Removes shared checkpoints of runs that we hold: a process killed while it finished them left these behind."""
    for other in shared.parent.glob(".together-*"):
        with suppress(ArtifactError):
            if other != shared and set(held) & set(read_json(other / MEMBERS)):
                shutil.rmtree(other, ignore_errors=True)


def _begin(config: RunConfig, folder: Path) -> dict[str, Any]:
    began = None
    with suppress(ArtifactError):  # a damaged record is written anew
        began = _status(folder).get("started")
    record = {"status": "running", "key": config.key, "started": began or now()} | provenance()
    write_json(folder / "config.json", config.to_json())
    write_json(folder / "provenance.json", record)
    return record


def _finish(
    config: RunConfig,
    folder: Path,
    data: Dataset,
    model: Model,
    fit: Fit,
    record: dict[str, Any],
    tell: Callable[[str], Any],
) -> Outcome:
    """Tests and saves; the scores depend on the config alone, times go with the provenance."""
    write_metrics(folder, rows_of(fit.trace))
    results, seconds = _results(config, folder, data, model, fit, tell)
    write_json(folder / "results.json", results)
    share = seconds["train_seconds"] / record.get("together", 1)  # of runs trained together, each took a part
    record |= {"status": "done", "ended": now()} | seconds | {"share_seconds": share}
    write_json(folder / "provenance.json", record)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return Outcome(folder, results, record, False)


def _prepare(config: RunConfig, root: Path | str | None, tell: Callable[[str], Any]) -> tuple[Dataset, Model]:
    tell("load")
    data = load(config.data, root, config.limit, normalise=config.normalise)
    return data, build_model(config, data)


def _status(folder: Path) -> dict[str, Any]:
    if not (folder / "provenance.json").is_file():
        return {}
    return _object(folder / "provenance.json", ())


def _found(config: RunConfig, folder: Path) -> Outcome | None:
    """What a run left behind that is done and whole; None where it is yet to do."""
    try:
        return finished(folder) if _status(folder).get("status") == "done" else None
    except ArtifactError:
        if _bears_its_name(config, folder):
            return None
        raise


def finished(folder: Path) -> Outcome:
    """Reads what a run that is done left behind.

    Raises:
        ArtifactError: a file that is damaged or gone.
    """
    status = _object(folder / "provenance.json", ("train_seconds", "test_seconds"))
    results = _object(folder / "results.json", ("members", "weights", "steps", "memory"))
    for name in _posterior_files(results):
        if not (folder / name).is_file():
            raise ArtifactError(
                f"{folder} is done, but its posteriors are gone ({name}); remove it to do the run again"
            )
    return Outcome(folder, results, status, True)


def _posterior_files(results: dict[str, Any]) -> list[str]:
    """One for each member; draws that are one ensemble lie in one file."""
    members = results["members"]
    count = 1 if "ensemble" in results or not isinstance(members, list) else len(members)
    return [f"posterior-{number}.safetensors" for number in range(count)]


def _object(path: Path, names: Sequence[str]) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict) or not all(name in value for name in names):
        raise ArtifactError(f"{path} is damaged: it needs {', '.join(names) or 'to be an object'}")
    return value


def _results(
    config: RunConfig, folder: Path, data: Dataset, model: Model, fit: Fit, tell: Callable[[str], Any]
) -> tuple[dict[str, Any], dict[str, float]]:
    tell("test")
    tested = time.perf_counter()
    scores = [_scores(config, model, data, posterior, fit, i) for i, posterior in enumerate(_members(fit))]
    tell("save")
    metadata = {
        name: value for name, value in config.to_json().items() if name in ("data", "model", "method", "hash")
    }
    metadata["model"] |= {"input_shape": list(data.input_shape), "classes": _outputs(data)}
    for number, posterior in enumerate(fit.posteriors):
        save_posterior(folder / f"posterior-{number}.safetensors", posterior, metadata=metadata | {"member": number})
    results = {
        "members": scores,
        "weights": _weights(fit.posteriors[0]),
        "steps": int(fit.trace["step"][-1]),
        "memory": None if fit.memory is None else fit.memory._asdict(),
    }
    if config.method == "hmc":
        results["chains"] = _mixing(fit)
    if config.method in ("ensemble", "hmc"):
        results["ensemble"] = _predictive(config, model, data, fit.posterior, fit)
    seconds = {"train_seconds": float(fit.trace["seconds"][-1]), "test_seconds": time.perf_counter() - tested}
    return results, seconds


def _fit(config: RunConfig, folder: Path, model: Model, data: Dataset, on_progress: Any) -> Fit:
    started = False

    def told(progress: Progress) -> None:
        nonlocal started
        if not started:  # a resumed run may have lines from after its checkpoint
            write_metrics(folder, progress.rows)
        elif not progress.resumed:
            append_metrics(folder, progress.row)
        started = True
        if on_progress is not None:
            on_progress(progress)

    key, options = jax.random.key(config.key), {"checkpoint": folder / "checkpoints", "on_progress": told}
    training = config.training
    if isinstance(training, VI):
        return fit_vi(key, model, data, training, **options)
    if isinstance(training, HMC):
        return fit_hmc(key, model, data, training, **options)
    return fit_ensemble(key, model, data, training, **options)


def _mixing(fit: Fit) -> dict[str, Any]:
    """Whether the chains accept and agree, after burn-in."""
    after = {name: column[fit.config.burn_in :] for name, column in fit.trace.items()}
    found = {
        "samples": len(fit.posterior),
        "acceptance": after["accepted"].mean(0),
        "energy_error": np.abs(after["energy_error"]).mean(0),
        "step_size": after["step_size"][-1],
    }
    found |= {name: after[name][-1] for name in ("rhat_max", "rhat_median", "ess_min", "ess_median")}
    return plain(found)


def _members(fit: Fit) -> list[Any]:
    """What is tested one by one; the draws of a chain are one posterior."""
    if isinstance(fit.config, HMC):
        return []
    if isinstance(fit.posteriors[0], Samples):
        return [fit.posteriors[0][i] for i in range(len(fit.posteriors[0]))]
    return list(fit.posteriors)


def _scores(config: RunConfig, model: Model, data: Dataset, posterior: Any, fit: Fit, member: int) -> dict[str, Any]:
    found = {"member": member} | _predictive(config, model, data, posterior, fit, member)
    found["train_loss"] = float(fit.trace["loss"][-1, member])
    if isinstance(posterior, Gaussian):
        stds = [np.asarray(leaf) for leaf in flatten(posterior.std).values()]
        stds = [leaf for leaf in stds if np.any(leaf)]
        found["std_mean"] = float(sum(leaf.sum(dtype=np.float64) for leaf in stds) / sum(leaf.size for leaf in stds))
    return found


def _predictive(
    config: RunConfig, model: Model, data: Dataset, posterior: Any, fit: Fit, member: int = 0
) -> dict[str, float]:
    """Scores of the marginal predictive distribution on the test set."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.key), member), TEST)
    options: dict[str, Any] = {"key": key, "samples": config.test_samples}
    if config.training.likelihood == "gaussian":
        noise = float(fit.trace["noise"][-1, member]) if "noise" in fit.trace else config.training.noise
        found = evaluate(posterior, model.apply, (data.x_test, data.y_test), log_likelihood=Normal(noise), **options)
        return {"test_nll": found.nll, "test_nll_error": found.standard_error}
    found = evaluate(posterior, model.apply, (data.x_test, data.y_test), **options)
    right = accuracy(found.log_probs, data.y_test)
    return {"test_accuracy": right, "test_nll": found.nll, "test_nll_error": found.standard_error}


def _check_folder(config: RunConfig, folder: Path) -> None:
    if not (folder / "config.json").is_file():
        if any(folder.glob("*.safetensors")) and not _bears_its_name(config, folder):
            raise ConfigError(f"{folder} holds files of something else than a run; choose another folder")
        return
    try:
        there = RunConfig.from_json(read_json(folder / "config.json"))
    except ArtifactError:
        if _bears_its_name(config, folder):
            return
        raise
    if there.hash != config.hash:
        found = "; ".join(differences(there, config)[:3])
        raise ConfigError(f"{folder} holds another run ({found}); choose another folder, or remove that one")


def _bears_its_name(config: RunConfig, folder: Path) -> bool:
    return folder.name == config.name


def _outputs(data: Dataset) -> int:
    return data.classes or int(np.prod(data.y_train.shape[1:], dtype=np.int64))


def _weights(posterior: Any) -> int:
    tree = posterior.mean if isinstance(posterior, Gaussian) else posterior[0]
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(tree))
