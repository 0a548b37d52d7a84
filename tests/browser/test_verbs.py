"""The pages that `barrier`, `compact` and `evaluate` write, and one of all three, in a real browser."""

import jax
import numpy as np
import pytest

from bayesin import Gaussian, Samples
from bayesin.cli.main import main
from bayesin.models import build
from bayesin.store import save_posterior

ABOUT = {
    "model": {"name": "mlp", "input_shape": [8, 8, 1], "classes": 10, "width": 8, "depth": 1},
    "data": {"name": "digits", "limit": 50},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, request):
    pytest.importorskip("tyro")
    request.getfixturevalue("browser")  # nothing is computed where there is none
    folder = tmp_path_factory.mktemp("verbs")
    model = build("mlp", (8, 8, 1), 10, width=8, depth=1)
    nets = [model.init(jax.random.key(seed)) for seed in range(4)]
    files = []
    for number, net in enumerate(nets[:2]):
        std = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.05, np.float32), net)
        files.append(str(save_posterior(folder / f"{number}.safetensors", Gaussian(net, std), metadata=ABOUT)))
    save_posterior(folder / "many.safetensors", Samples.stack(nets), metadata=ABOUT)
    small = ["--samples", "2", "--taus", "3", "--sets", "test", "--quiet"]
    assert main(["barrier", *files, "--align", *small, "--out", str(folder / "way")]) == 0
    one = ["--draws", "4", "--quiet", "--out", str(folder / "one")]
    assert main(["compact", str(folder / "many.safetensors"), *one]) == 0
    assert main(["evaluate", *files, "--samples", "2", "--quiet", "--out", str(folder / "scores")]) == 0
    folders = {"barrier": folder / "way", "compact": folder / "one", "evaluate": folder / "scores"}
    assert main(["report", *map(str, folders.values()), "--quiet", "--out", str(folder / "all.html")]) == 0
    return {verb: place / "report.html" for verb, place in folders.items()} | {"report": folder / "all.html"}


SHOWN = {
    "barrier": ["top", "barrier", "walk", "plane", "alignment", "graph", "posterior", "run"],
    "compact": ["top", "compact", "evaluation", "posterior", "run"],
    "evaluate": ["top", "evaluation", "run"],
}


@pytest.mark.parametrize("verb", [*SHOWN])
@pytest.mark.parametrize(("width", "theme"), [(1366, "light"), (390, "dark")])
def test_every_section_is_drawn(browser, pages, verb, width, theme):
    page = browser.open(pages[verb], width=width, theme=theme)
    assert page.locator("main > section").evaluate_all("nodes => nodes.map((node) => node.id)") == SHOWN[verb]
    marks = page.locator("[data-plot]").evaluate_all(
        "nodes => nodes.map((node) => node.querySelectorAll('.main-svg path, .main-svg image').length)"
    )
    assert len(marks) >= 4 and min(marks) >= 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.problems == [] and {url.split(":")[0] for url in browser.requests} <= {"file", "data", "blob"}


def test_one_legend_serves_all_curves_of_predictions(browser, pages):
    page = browser.open(pages["compact"])
    keys = page.locator("#evaluation > .legend .key").evaluate_all("nodes => nodes.map((node) => node.className)")
    assert keys == ["key third", "key naive", "key aligned", "key naive dash", "key aligned dash"]
    drawn = page.locator("#evaluation [data-plot] .legend").count()
    assert drawn == 0  # plotly's own would take the place of the curves


def test_runs_of_several_kinds_have_a_table_for_each(browser, pages):
    page = browser.open(pages["report"])
    titles = page.locator("#top .compared h2").all_inner_texts()
    assert titles == ["Barriers", "Many samples in one Gaussian", "Predictions"]


def test_the_table_of_compact(browser, pages):
    page = browser.open(pages["compact"])
    rows = page.locator("#compact .numbers tbody tr")
    assert rows.count() == 5
    cells = rows.first.inner_text().split("\t")
    assert cells[:3] == ["the samples", "100.0\u00a0%", "0.0000"] and len(cells) == 6  # accuracy, NLL and ECE
    links = page.locator("#run .files a").evaluate_all("nodes => nodes.map((node) => node.getAttribute('href'))")
    assert {"./compact.json", "./posterior-0.safetensors", "./figures/compact.pdf"} <= set(links)
