"""A run: from a config to a folder with posteriors and numbers, done once.

    config.json                what was asked for
    provenance.json            versions, device, commit, times, status: running, done, failed or interrupted
    metrics.jsonl              the trace, a line for each logging interval, written as training goes on
    posterior-0.safetensors …  one for each member; an ensemble is one file with all members
    results.json               scores on the test set, for each member
    README.md                  a card of all this, for people and for the Hugging Face hub
    checkpoints/               while it is not done

`done` is written last, with the checksums of results and posteriors: a folder without it is taken up where it was,
one with it is compared and left alone. Damage is work not done, wherever the folder says which run it is: by its
config, or by the name of the run, which holds the hash of the config.
"""

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...data import Dataset, is_data_file, published_content
from ...errors import ArtifactError, ConfigError, TrainingError
from ...files import file_hash, remove_folder, remove_leftovers
from ...inference import VI, Fit, Mixing, Progress, chains_of, check_network, fit_vi_grid, likelihood_of
from ...json_files import read_json, write_json
from ...likelihoods import Likelihood, Normal
from ...locks import locked
from ...models import Model
from ...randomness import seed_key
from ...store import read_tensors, save_posterior
from .config import METHODS, RunConfig, build_model, differences
from .records import append_metrics, now, provenance, reason, trace_rows, write_metrics
from .run_data import data_places, load_run_data
from .run_scores import test_results, write_run_card

LOCK = ".lock"  # held by the process that works in a folder
MEMBERS = "members.json"  # names of the runs that share a checkpoint
_NUMBER = float | None
_SCORES = {"test_nll": _NUMBER, "test_nll_error": _NUMBER, "test_accuracy?": _NUMBER, "std_mean?": _NUMBER}
RESULTS = {  # of results.json
    "members": [_SCORES | {"member": int, "train_loss?": _NUMBER}],
    "ensemble?": _SCORES,
    "weights": int,
    "steps": int,
    "memory": ({"member": float, "work": float, "data": float}, None),
    "chains?": {
        "samples": int,
        **{name: [_NUMBER] for name in ("acceptance", "energy_error", "step_size")},
        **{f"{name}?": _NUMBER for name in ("rhat_max", "rhat_median", "ess_min", "ess_median")},
    },
    "mixing?": {"one_basin": bool, "parts": {str: {name: _NUMBER for name in Mixing._fields}}},
}
DONE = {  # of provenance.json
    "status": "done",
    "train_seconds": float,
    "test_seconds": float,
    "share_seconds?": float,
    "files?": {str: str},
}
Tell = Callable[[str], Any]  # told of the stages "load", "train", "test" and "save" as they begin


class RunOutcome(NamedTuple):
    """What a run left behind."""

    folder: Path
    results: dict[str, Any]
    provenance: dict[str, Any]
    reused: bool  # it was done already
    unchecked: bool = False  # and nothing tells whether its data are those that are here now


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    root: Path | str | None = None,
    prepared: tuple[Dataset, Model] | None = None,
    wait: bool = False,
    on_progress: Callable[[Progress], Any] | None = None,
    on_stage: Tell | None = None,
) -> RunOutcome:
    """Does a run, or goes on with it, or returns what it left when it was done.

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
    if prepared is None and is_data_file(config.data):  # what is in it decides which run this is
        prepared = _prepare(config, root, tell)
    config = _with_content(config, prepared)
    _check_folder(config, folder)
    outcome = _whole_outcome(folder)
    if outcome is not None and not os.access(folder, os.W_OK):  # kept where none can write
        return outcome
    # Before the folder is made, so that a misspelt data set leaves nothing behind.
    if prepared is None and outcome is None:
        prepared = _prepare(config, root, tell)
    with locked(folder / LOCK, wait=wait):
        _check_folder(config, folder)
        remove_leftovers(folder)
        if (outcome := _whole_outcome(folder)) is not None:
            remove_folder(folder / "checkpoints")
            return outcome
        record = _begin(config, folder, root)
        data, model = prepared or _prepare(config, root, tell)
        try:
            check_network(seed_key(config.key), model, data, likelihood_of(config.training))
            tell("train")
            fit = _fit(config, folder, model, data, on_progress)
            return _finish(config, folder, data, model, fit, record, tell)
        except (Exception, KeyboardInterrupt) as error:
            _check_there(folder)  # a record alone would be no run
            if isinstance(error, TrainingError) and error.trace is not None:
                write_metrics(folder, trace_rows(error.trace))
            stopped = isinstance(error, KeyboardInterrupt)
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
        ConfigError: a folder holds another run.
        TrainingError: one of them diverged. Nothing is recorded, as nothing is known of the others; run each alone.
    """
    configs = [_with_content(config, prepared) for config in configs]
    with ExitStack() as stack:
        for folder in sorted(folders):  # in one order, so that two processes cannot hold what the other waits for
            stack.enter_context(locked(folder / LOCK, wait=True))
        for config, folder in zip(configs, folders, strict=True):
            _check_folder(config, folder)
        todo = [pair for pair in zip(configs, folders, strict=True) if _whole_outcome(pair[1]) is None]
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
            fits = fit_vi_grid(seed_key(configs[0].key), prepared[1], prepared[0], settings, **options)
            for (config, folder), fit, record in zip(todo, fits, records, strict=True):
                _finish(config, folder, *prepared, fit, record, lambda stage: None)
        except ArtifactError:  # a full disk: what was trained is kept
            raise
        except Exception:
            remove_folder(shared)
            raise
        remove_folder(shared)


def finished(folder: Path, *, thorough: bool = True) -> RunOutcome:
    """Reads what a run that is done left behind, and compares its files with their checksums.

    Without `thorough` it only looks whether they are there, which is quick whatever their size.

    Raises:
        ArtifactError: a file that is damaged or gone.
    """
    record = read_json(folder / "provenance.json", DONE)
    results = read_json(folder / "results.json", RESULTS)
    sums = record.get("files", {})
    for name in [*_posterior_files(results), "results.json"]:
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{folder} is done, but {name} is gone; the same 'bayesin train' makes it again")
        if not thorough:
            continue
        if name not in sums and path.suffix == ".safetensors":  # of version 0.1; the file has a checksum of its own
            read_tensors(path)
        if name in sums and file_hash(path) != sums[name]:
            raise ArtifactError(f"{path} was changed or damaged; the same 'bayesin train' makes it again")
    return RunOutcome(folder, results, record, True)


def _prepare(config: RunConfig, root: Path | str | None, tell: Tell) -> tuple[Dataset, Model]:
    tell("load")
    data = load_run_data(config.about_data, root)
    return data, build_model(config, data)


def _with_content(config: RunConfig, prepared: tuple[Dataset, Model] | None) -> RunConfig:
    """The config, with the content of the data that it will be trained on."""
    content = published_content(config.data) if prepared is None else prepared[0].content
    if config.data_content not in (None, content):
        raise ConfigError(f"{config.data} holds other data than the config of this run says")
    return dataclasses.replace(config, data_content=content)


def _begin(config: RunConfig, folder: Path, root: Path | str | None = None) -> dict[str, Any]:
    """Writes down what begins, or goes on: then it began when it first did."""
    began = None
    with suppress(ArtifactError):  # a damaged record is written anew
        began = _record(folder).get("started")
    record = {"status": "running", "key": config.key, "started": began or now()} | provenance()
    record |= data_places(config.data, root, folder)
    write_json(folder / "config.json", config.to_json())
    write_json(folder / "provenance.json", record)
    return record


def _fit(config: RunConfig, folder: Path, model: Model, data: Dataset, on_progress: Any) -> Fit:
    started = False

    def told(progress: Progress) -> None:
        nonlocal started
        _check_there(folder)
        if not started:  # a resumed run may have lines from after its checkpoint
            write_metrics(folder, progress.rows)
        elif not progress.resumed:
            append_metrics(folder, progress.row)
        started = True
        if on_progress is not None:
            on_progress(progress)

    key, options = seed_key(config.key), {"checkpoint": folder / "checkpoints", "on_progress": told}
    return METHODS[config.method].fit(key, model, data, config.training, **options)


def _finish(
    config: RunConfig, folder: Path, data: Dataset, model: Model, fit: Fit, record: dict[str, Any], tell: Tell
) -> RunOutcome:
    """Tests, saves, and says last that it is done."""
    write_metrics(folder, trace_rows(fit.trace))
    tell("test")
    began = time.perf_counter()
    results = test_results(config, data, model, fit)
    tell("save")
    about = {name: value for name, value in config.to_json().items() if name in ("data", "model", "method", "hash")}
    shape = {"input_shape": list(data.input_shape)} if isinstance(data.input_shape, tuple) else {}  # of one array
    about["model"] |= shape | {"classes": data.outputs}
    for number, posterior in enumerate(fit.posteriors):
        own = about | {"member": number} | _noise(fit.likelihoods[number])
        own |= {} if (chains := chains_of(fit)) is None else {"chains": chains}
        save_posterior(folder / f"posterior-{number}.safetensors", posterior, metadata=own)
    write_json(folder / "results.json", results)
    write_run_card(folder, config, data, model, fit.posteriors[0], results)
    files = [*(f"posterior-{number}.safetensors" for number in range(len(fit.posteriors))), "results.json"]
    train_seconds = float(fit.trace["seconds"][-1])
    record |= {
        "status": "done",
        "ended": now(),
        "train_seconds": train_seconds,
        "test_seconds": time.perf_counter() - began,
        "share_seconds": train_seconds / record.get("together", 1),  # of runs trained together, each took a part
        "files": {name: file_hash(folder / name) for name in files},
    }
    write_json(folder / "provenance.json", record)
    remove_folder(folder / "checkpoints")
    return RunOutcome(folder, results, record, False)


def _noise(likelihood: Likelihood) -> dict[str, float]:
    """What a prediction of real targets needs beside the weights; labels need nothing."""
    return {"noise": float(likelihood.std)} if isinstance(likelihood, Normal) else {}


def _remove_overtaken(shared: Path, held: Sequence[str]) -> None:
    """Removes shared checkpoints of runs that we hold: a process killed while it finished them left these behind."""
    for other in shared.parent.glob(".together-*"):
        with suppress(ArtifactError):
            if other != shared and set(held) & set(read_json(other / MEMBERS, [str])):
                remove_folder(other)


def _check_there(folder: Path) -> None:
    """Raises where somebody has moved or removed the folder, before anything is written in its place."""
    if not (folder / "config.json").is_file():
        raise ArtifactError(f"{folder} was moved or removed while its run went on")


def _check_folder(config: RunConfig, folder: Path) -> None:
    """Raises where the folder holds something else than this run."""
    if not (folder / "config.json").is_file():
        if any(folder.glob("*.safetensors")) and not _bears_its_name(config, folder):
            raise ConfigError(f"{folder} holds files of something else than a run; choose another folder")
        return
    try:
        there = _config_of(folder)
    except ArtifactError:
        if _bears_its_name(config, folder):
            return
        raise
    if there.data_content is None:  # of version 0.1, which went by the name alone
        config = dataclasses.replace(config, data_content=None)
    elif there.data_content != config.data_content:
        raise ConfigError(
            f"{folder} holds a run on other data: {there.data} had another content when it was trained; "
            "choose another folder, or remove that one"
        )
    if there.hash != config.hash:
        settings = "; ".join(differences(there, config)[:3])
        raise ConfigError(f"{folder} holds another run ({settings}); choose another folder, or remove that one")


def _whole_outcome(folder: Path) -> RunOutcome | None:
    """What a run left behind that is done and whole; None where it is yet to do, or to be done again.

    Whatever is damaged can be made again, as its config is there or in the folder's name.
    """
    try:
        if _record(folder).get("status") != "done":
            return None
        there = _config_of(folder)
        return finished(folder)._replace(unchecked=there.about_data.unchecked)
    except ArtifactError:
        if os.access(folder, os.W_OK):
            return None
        raise


def _config_of(folder: Path) -> RunConfig:
    path = folder / "config.json"
    return RunConfig.from_json(read_json(path), str(path))


def _bears_its_name(config: RunConfig, folder: Path) -> bool:
    return folder.name == config.name


def _record(folder: Path) -> dict[str, Any]:
    path = folder / "provenance.json"
    return read_json(path, dict) if path.is_file() else {}


def _posterior_files(results: dict[str, Any]) -> list[str]:
    """One for each member; draws that are one ensemble lie in one file."""
    count = 1 if "ensemble" in results else len(results["members"])
    return [f"posterior-{number}.safetensors" for number in range(count)]
