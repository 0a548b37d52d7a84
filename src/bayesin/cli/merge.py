"""`bayesin merge`: many posteriors to the one at their middle, aligned, rescaled and scored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..evaluation import predict
from ..inputs import take
from ..json_files import plain, write_json
from ..lab.runs import (
    CHECKED,
    DRAWS,
    SEEN,
    CostName,
    PosteriorFile,
    SymmetryChoice,
    cost_of_name,
    dataset_of,
    doubts_about_data,
    find_posterior,
    likelihood_of_file,
    model_of,
    point_of,
    read_posterior,
    verified_spec,
    versions,
    with_errors,
)
from ..matching import barycentre
from ..merging import Merged, merge
from ..posteriors import is_posterior
from ..randomness import seed_key
from ..store import card_is_ours, save_posterior, write_card
from ..symmetry import check_same_function
from .main import Common
from .output import Output
from .output_dir import result_folder

FILES = ("posterior-0.safetensors", "merge.json")
SHOWN = ("accuracy", "nll", "ece", "rmse", "crps")


@dataclass(frozen=True)
class Merge(SymmetryChoice, Common):
    """Merge POSTERIORS of one network into the one at their middle, of the size of one.

    Their units are brought into a common order, means and stds are averaged, and every unit is given the mean and
    spread that it has in them on training inputs, without labels. The table scores the members, the plain average of
    them as they are, the average after alignment, and the result, on the test set.
    """

    posteriors: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Run folders or safetensors files, two or more; RUN#1 picks the second posterior of a run folder."""
    out: Path | None = None
    """Folder for posterior-0.safetensors (the merged one) and merge.json. Needed."""
    cost: CostName = "wasserstein"
    """What alignment makes small: W2, the distance of means, KL, activations on training inputs, or blend."""
    rescale: bool = True
    """Leave the units as averaging made them."""
    samples: int = 128
    """Draws of the weights for the scores."""
    key: int = 0
    """Seed of the alignment and of all draws."""
    force: bool = False
    """Replace results of an earlier merge."""

    def run(self, out: Output) -> dict[str, Any]:
        if len(self.posteriors) < 2 or self.out is None:
            raise ConfigError("needs two posteriors or more and a place: bayesin merge FIRST SECOND … --out FOLDER")
        files = [find_posterior(text) for text in self.posteriors]
        with result_folder(self.out, FILES, [file.path for file in files], force=self.force) as place:
            merged, result, spec = self._merge(out, files)
            kept = {name: files[0].metadata[name] for name in ("model", "data", "noise") if name in files[0].metadata}
            metadata = kept | {"merged": [str(file.path) for file in files]}
            save_posterior(place / FILES[0], merged.posterior, spec=spec, metadata=metadata)
            write_json(place / FILES[1], result)
            if card_is_ours(self.out):
                write_card(place, about=_about(result), scores=_card_scores(result))
        columns = [name for name in SHOWN if name in next(iter(result["scores"].values()))]
        rows = [[of, *(f"{score[name]:.4f}" for name in columns)] for of, score in result["scores"].items()]
        out.table(f"{result['examples']:,} test examples of {result['data']}", ["of", *columns], rows)
        out.line(f"Wrote {self.out / FILES[0]} and {self.out / FILES[1]}")
        return result | {"posterior": str(self.out / FILES[0])}

    def _merge(self, out: Output, files: list[PosteriorFile]) -> tuple[Merged, dict[str, Any], Any]:
        data = dataset_of(self, *files)
        model = model_of(self, data, *files)
        if data is None or model is None:
            raise ConfigError(
                f"nothing names the {'data' if data is None else 'model'} of these posteriors; use --data and --model"
            )
        if doubts := doubts_about_data(data, *files):
            out.warn(doubts)
        key, likelihood = seed_key(self.key), likelihood_of_file(files[0], data)
        members = [read_posterior(file, model) for file in files]
        spec, origin = verified_spec(files[0], model, data, point_of(members[0]), self)
        with out.progress("merging", None):
            merged = merge(
                members,
                spec,
                key=key,
                cost=cost_of_name(self.cost, model, data, key),
                apply=model.apply,
                x=take(data.x_train, slice(SEEN)) if self.rescale else None,
                samples=DRAWS,
                exclude=model.statistics,
            )
        inputs = take(data.x_test, slice(CHECKED))
        change = max(
            check_same_function(model.apply, point_of(before), point_of(after), inputs)
            for before, after in zip(members, merged.members, strict=True)
        )
        candidates: dict[str, Any] = {file.text: member for file, member in zip(files, members, strict=True)}
        plainly = barycentre(members) if any(map(is_posterior, members)) else barycentre(members).mean
        candidates |= {"average, not aligned": plainly, "average, aligned": merged.average}
        candidates |= {"aligned and rescaled": merged.posterior} if merged.rescaled else {}
        with out.progress("scoring", None):
            options = {"key": key, "samples": self.samples, "likelihood": likelihood}
            scores = {
                of: predict(q, model, data.x_test, **options).metrics(data.y_test) for of, q in candidates.items()
            }
        settings = {"cost": self.cost, "rescaled": merged.rescaled, "samples": self.samples, "key": self.key}
        result = settings | {"data": data.name, "examples": len(data.y_test), "scores": plain(scores)}
        return merged, result | {"function_change": change, "spec": origin}, spec


def _about(result: dict[str, Any]) -> dict[str, Any]:
    """What the card says beyond the header."""
    settings = {name: result[name] for name in ("cost", "rescaled", "key")}
    return {"method": "the middle of aligned posteriors", "training": settings, "versions": versions()}


def _card_scores(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The merged posterior is the last that was scored."""
    *others, (_, merged) = result["scores"].items()
    return {of: with_errors(row, result["examples"]) for of, row in [("this posterior", merged), *others]}
