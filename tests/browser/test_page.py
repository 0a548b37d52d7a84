"""The page in a real browser: every plot drawn, every control working, nothing said on the console, no network."""

import numpy as np
import pytest

from bayesin.errors import ArtifactError
from bayesin.lab.report import write_page, write_report
from report_data import HOSTILE, synthetic

PLOTS = {
    "barrier-nll", "barrier-accuracy", "barrier-ece", "calibration", "confusion-naive", "confusion-aligned", "plane",
    "history", "moved", "similarity-before", "similarity-after", "correlation", "stds", "swaps", "folded-stds",
    "std-layers", "snr", "seconds", "hero", "selective", "entropies", "reliability", "coverage",
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_report(folder, synthetic())
    return write_page(folder / "report.html", [folder])


FOCUS = "(({id, className, type, tagName}) => id || className || type || tagName)(document.activeElement)"


def drawn(page) -> dict[str, int]:
    """Marks (paths and images) inside each plot."""
    script = """() => Object.fromEntries([...document.querySelectorAll('[data-plot]')].map((node) =>
        [node.dataset.plot, node.querySelectorAll('.main-svg path, .main-svg image').length]))"""
    return page.evaluate(script)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (768, "dark"), (320, "light")])
def test_every_plot_is_drawn_nothing_overflows_and_no_request_leaves_the_machine(browser, path, width, theme):
    page = browser.open(path, width=width, theme=theme)
    marks = drawn(page)
    assert set(marks) == PLOTS
    assert min(marks.values()) >= 4, marks
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    for name in PLOTS:
        box = page.locator(f'[data-plot="{name}"]').bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] > 80, (name, box)
    page.locator("#tau").press("ArrowRight")
    page.locator("#theme").click()
    page.wait_for_timeout(200)
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data", "blob"}  # none leaves the machine
    assert sum(url.startswith("file:") for url in browser.requests) == 1
    assert browser.problems == []
    browser.shown = None  # in the other theme


def test_the_slider_moves_the_numbers(browser, path):
    page = browser.open(path)
    walk, seen = synthetic()["walk"], []
    for key, step in (("Home", 0), ("ArrowRight", 1), ("End", 24), ("ArrowLeft", 23)):
        page.locator("#tau").press(key)
        page.wait_for_timeout(150)
        assert page.locator(".slider output").inner_text() == f"τ = {walk['taus'][step]:.3f}"
        losses = page.locator("#walk .numbers tbody tr td:nth-child(2)").all_inner_texts()
        assert losses == [f"{walk[kind][step]['nll']:.3f}" for kind in ("naive", "aligned")]
        shown = page.evaluate("document.querySelector('[data-plot=confusion-naive]').data[0].customdata")
        assert shown == walk["naive"][step]["confusion"]
        marker = page.evaluate("document.querySelector('[data-plot=barrier-nll]').layout.shapes[0].x0")
        assert marker == pytest.approx(walk["taus"][step], abs=1e-5)
        seen.append(page.locator(".image .says").all_inner_texts())
    assert seen[0] != seen[2]
    assert browser.problems == []


def test_the_curves_stand_beside_the_headline(browser, path):
    page = browser.keep(path)
    page.evaluate("scrollTo(0, 0)")
    box = page.locator('[data-plot="hero"]').bounding_box()
    assert box["x"] > 640 and box["y"] + box["height"] <= 800


def test_play_walks_to_the_end_and_stops(browser, path):
    page = browser.keep(path)
    page.locator("#tau").evaluate("node => { node.value = 16; node.dispatchEvent(new Event('input')); }")
    button = page.locator(".slider button")
    button.click()
    assert button.inner_text() == "Pause"
    for _ in range(40):  # the page's policy forbids the evaluation that waiting for a condition needs
        page.wait_for_timeout(250)
        if page.locator("#tau").input_value() == "24":
            break
    assert page.locator("#tau").input_value() == "24"
    assert button.inner_text() == "Play"


def test_a_click_on_a_curve_moves_the_slider(browser, path):
    page = browser.keep(path)
    page.locator('[data-plot="barrier-accuracy"]').scroll_into_view_if_needed()
    box = page.locator('[data-plot="barrier-accuracy"] .nsewdrag').bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
    page.wait_for_timeout(300)
    page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
    page.wait_for_timeout(300)
    assert abs(float(page.locator(".slider output").inner_text().split("=")[1]) - 0.25) < 0.05


def test_test_and_training_set(browser, path):
    page = browser.keep(path)
    first = page.evaluate("document.querySelector('[data-plot=barrier-nll]').data.at(-1).y[0]")
    page.locator("#barrier input[value=test]").press("ArrowRight")
    page.wait_for_timeout(200)
    assert page.locator("#barrier input[value=train]").is_checked()
    second = page.evaluate("document.querySelector('[data-plot=barrier-nll]').data.at(-1).y[0]")
    assert (first, second) == (pytest.approx(0.06), pytest.approx(0.03))
    page.locator("#barrier summary").click()
    assert page.locator("#barrier details tbody tr").count() == 25


def test_the_group_is_chosen(browser, path):
    page = browser.keep(path)
    page.evaluate("document.querySelector('[data-plot=correlation]').data[0].x[0] = 99")
    page.locator("#group").select_option("g1")
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelector('[data-plot=correlation]').data[0].x[0]") != 99


def test_the_matching_plays_sweep_by_sweep(browser, path):
    page = browser.open(path)
    corner = "document.querySelector('[data-plot=similarity-after]').data[0].z[0][0]"
    frames = synthetic()["alignment"]["similarity"]["g0"]
    whole = [frames["before"], *frames["between"], frames["after"]]
    assert page.evaluate(corner) == whole[-1][0][0]  # it begins where the search ended
    for step in (0, 2, 3):
        page.locator("#sweep").evaluate(f"node => {{ node.value = {step}; node.dispatchEvent(new Event('input')); }}")
        page.wait_for_timeout(150)
        assert page.evaluate(corner) == pytest.approx(whole[step][0][0])
    button = page.locator(".sweeps button")
    button.click()
    assert button.inner_text() == "Pause"
    page.wait_for_timeout(3 * 650 + 900)
    assert button.inner_text() == "Play" and page.locator(".sweeps output").inner_text() == "after"
    page.emulate_media(reduced_motion="reduce")  # a press is a step, and nothing moves by itself
    for step in (0, 1):
        button.click()
        page.wait_for_timeout(100)
        assert button.inner_text() == "Next step" and page.locator("#sweep").input_value() == str(step)
    page.wait_for_timeout(900)
    assert page.locator("#sweep").input_value() == "1"
    page.emulate_media(reduced_motion="no-preference")
    assert browser.problems == []


def test_on_a_phone_nothing_is_cut_or_covered(browser, path):
    page = browser.open(path, width=390, height=844)
    for link in page.locator("#nav a").all():
        box = link.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.locator("#tau").focus()
    gap = """() => document.querySelector('.slider .ends').getBoundingClientRect().top
        - document.querySelector('#tau').getBoundingClientRect().bottom"""
    assert page.evaluate(gap) >= -1  # the focus ring lies inside the slider, whose labels stand below it


def test_the_theme_follows_the_system_until_one_is_chosen(browser, path):
    page = browser.open(path)
    colours = """() => [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor,
        document.querySelector('[data-plot=barrier-nll]').layout.font.color]"""
    light = page.evaluate(colours)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    dark = page.evaluate(colours)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.locator("#theme").press("Enter")
    page.wait_for_timeout(300)
    assert page.evaluate(colours) == light
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.evaluate(colours) == light  # the choice is kept, though the system says dark
    browser.shown = None


def test_the_keyboard_reaches_every_control(browser, path):
    page = browser.open(path)
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUS))
        if reached[-1] == "BODY":  # round once
            break
        outlined = page.evaluate(
            """() => [document.activeElement, document.activeElement.nextElementSibling].some(
                (node) => node && getComputedStyle(node).outlineStyle !== 'none')"""
        )
        assert outlined, reached[-1]
    assert reached[0] == "skip"
    assert {"theme", "radio", "tau", "group"} <= set(reached)


def test_turning_the_phone_draws_afresh(browser, path):
    page = browser.open(path, width=390, height=844)
    page.set_viewport_size({"width": 1000, "height": 390})
    page.wait_for_timeout(1000)
    assert page.locator('[data-plot="plane"] .colorbar').count() == 1
    box, plot = page.locator('[data-plot="plane"]').bounding_box(), page.locator('[data-plot="plane"] .nsewdrag')
    assert plot.bounding_box()["width"] > 0.6 * box["width"]
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(1000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.problems == []


def test_hostile_names_are_shown_and_not_run(browser, tmp_path):
    report = synthetic(title=HOSTILE, group=HOSTILE)
    report["summary"][0]["label"] = HOSTILE
    report["walk"]["classes"] = [HOSTILE] * 10
    report["plane"]["points"][0]["name"] = '<a href="javascript:alert(1)">x</a>' + HOSTILE
    report["posterior"]["names"] = [HOSTILE, "<b>bold</b>"]
    report["run"]["config"] = {HOSTILE: HOSTILE}
    report["files"] = [{"name": "javascript:alert(1)", "bytes": 1, "says": HOSTILE}]
    write_report(tmp_path, report)
    page = browser.open(write_page(tmp_path / "report.html", [tmp_path]))
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("main img").count() == 0
    assert page.locator("main a[href^=javascript], svg a").count() == 0
    assert HOSTILE in page.locator('[data-plot="moved"]').evaluate("node => node.textContent")
    assert browser.problems == []


def test_several_runs_have_a_chooser_and_a_table(browser, tmp_path):
    for name in ("one", "two"):
        write_report(tmp_path / name, synthetic(title=f"Run {name}"))
    page = browser.open(write_page(tmp_path / "all.html", [tmp_path / "one", tmp_path / "two"]))
    assert page.locator("#top tbody tr").count() == 4  # each has a barrier and a Gaussian, in tables of their own
    assert "–" not in page.locator("#top table").all_inner_texts()
    page.locator("#which").select_option("1")
    page.wait_for_timeout(300)
    assert page.locator("h1").inner_text() == "Run two"
    assert set(drawn(page)) == PLOTS
    assert browser.problems == []


def test_a_report_may_have_any_one_section_alone(browser, tmp_path):
    whole = synthetic()
    sections = ["barrier", "walk", "plane", "alignment", "compact", "evaluation", "posterior", "tables", "run"]
    for section in sections:
        write_report(tmp_path / section, {"title": "Alone", section: whole[section]})
    page = browser.open(write_page(tmp_path / "report.html", [tmp_path / section for section in sections]))
    for number, section in enumerate(sections):
        page.locator("#which").select_option(str(number))
        page.wait_for_timeout(200)
        found = page.locator("main > section").evaluate_all("nodes => nodes.map((node) => node.id)")
        assert found == ["top", section]
        assert browser.problems == []


def test_a_point_and_a_single_path(browser, tmp_path):
    """A barrier without alignment, no errors, no accuracy: what regression or a single `barrier` gives."""
    curve = {"taus": [0, 0.5, 1], "nll": [1.0, None, 1.2], "value": 0.0, "error": None}
    report = {"title": "Bare", "barrier": {"sets": {"test": {"naive": curve}}}}
    write_report(tmp_path, report)
    page = browser.open(write_page(tmp_path / "report.html", [tmp_path]))
    assert set(drawn(page)) == {"barrier-nll", "hero"}
    assert browser.problems == []


def test_whatever_passes_the_check_can_be_shown(browser, tmp_path):
    """Reports with parts taken out at random: refused before the page is made, or shown without an error."""
    random, folders = np.random.default_rng(0), []
    for number in range(20):
        report = synthetic()
        for _ in range(random.integers(1, 4)):
            _damage(report, random)
        try:
            write_report(tmp_path / str(number), report)
            folders.append(tmp_path / str(number))
        except ArtifactError:
            continue
        if len(folders) == 6:
            break
    assert len(folders) == 6
    page = browser.open(write_page(tmp_path / "all.html", folders))
    for number in range(6):
        page.locator("#which").select_option(str(number))
        page.wait_for_timeout(100)
        assert browser.problems == [], folders[number]


def _damage(node, random) -> None:
    """Deletes, empties or nulls one member somewhere in the tree."""
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        keys = [key for key in keys if key not in ("format", "version")]
        if not keys:
            return
        key = keys[random.integers(len(keys))]
        if isinstance(node[key], dict | list) and node[key] and random.random() < 0.75:
            node = node[key]
            continue
        kind = random.integers(3)
        if kind == 0 and isinstance(node, dict):
            del node[key]
        else:
            node[key] = None if kind == 1 else type(node[key])()
        return
