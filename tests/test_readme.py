"""The README's example runs as it stands and prints what is said, and its table holds what was measured."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
MEASURED = README.parent / "results" / "numbers" / "remedies.json"
ROWS = {
    "MNIST, MLP 3×512, converged": ("mnist", "mlp", 512, None),
    "CIFAR-10, ResNet20, LayerNorm, 32 features": ("cifar10", "resnet20", 32, "layernorm"),
    "CIFAR-10, ResNet20, LayerNorm, 64 features": ("cifar10", "resnet20", 64, "layernorm", "accurate"),
    "CIFAR-10, ResNet20, FRN, 32 features": ("cifar10", "resnet20", 32, "frn"),
    "CIFAR-10, vision transformer, 128 units": ("cifar10", "vit", 128, None),
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # 15 s of a quiet core
def test_the_example_of_the_readme_lowers_the_barrier(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = [float(number) for number in capsys.readouterr().out.split()]
    said = re.search(r"^prints (\S+) and (\S+) nats", README.read_text(), re.MULTILINE)
    assert said is not None
    # Another processor sums in another order, and training goes its own way from there.
    assert printed == pytest.approx([float(number) for number in said.groups()], rel=0.1, abs=0.005)


def test_the_table_of_results_holds_what_was_measured():
    cells = [line.strip("|").split("|") for line in README.read_text().splitlines() if line.startswith("|")]
    rows = {name.strip(): numbers for name, *numbers in cells if name.strip() in ROWS}
    assert rows.keys() == ROWS.keys()
    records = json.loads(MEASURED.read_text())["records"]
    for name, network in ROWS.items():
        pairs = [r for r in records if r["settings"]["kind"] == "remedy" and _network_of(r) == network]
        naive, aligned = _mean(pairs, "none", "geodesic"), _mean(pairs, "wasserstein", "geodesic")
        by_function = [_mean(pairs, matching, "fitted") for matching in ("activations", "blend")]
        best = min(mean for mean in by_function if mean is not None)
        before, after, left = (
            f"{found[0]:.2g}" if found[0] < 0.1 else f"{found[0]:.2f}" for found in (naive, aligned, best)
        )
        said = [number.strip() for number in rows[name]]
        assert said[:3] == [before, after, left]
        assert said[3] == f"{100 * naive[1]:.0f} → {100 * best[1]:.1f}"


def _network_of(record: Mapping) -> tuple:
    config = record["settings"]["config"]
    parts = (config["model"].get(part) for part in ("name", "width", "norm"))
    return (config["data"]["name"], *parts, *(["accurate"] if config["training"]["initial_std"] == 0.003 else []))


def _mean(pairs: list, matching: str, path: str) -> tuple[float, float] | None:
    """The height of the barrier and the accuracy lost on the way, over the pairs that were measured."""
    found = [
        pair["numbers"] for pair in pairs if pair["settings"]["matching"] == matching and pair["state"] == "done"
    ]
    curves = [numbers[path] for numbers in found if path in numbers]
    if not curves:
        return None
    return tuple(sum(curve[what] for curve in curves) / len(curves) for what in ("value", "accuracy_drop"))


PAGES = [*README.parent.glob("*.md"), *(README.parent / "results").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_of_pages_outside_the_documentation_lead_somewhere(page):
    for target in re.findall(r'\]\(([^)#:]+)\)|src="([^":]+)"', page.read_text()):
        (path,) = filter(None, target)
        assert (page.parent / path).exists(), path
