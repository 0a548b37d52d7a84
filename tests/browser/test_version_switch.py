"""The switch between versions of the documentation, on pages made by hand: it keeps the page where it can."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_switch_keeps_the_page_or_goes_to_the_front(browser, tmp_path):
    spec = importlib.util.spec_from_file_location("versions", DOCS / "versions.py")
    versions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(versions)
    for name, pages in {"v0.2.0": ["index", "a/both", "new"], "v0.1.0": ["index", "a/both"]}.items():
        for page in pages:
            path = tmp_path / name / f"{page}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"<html><body><p>{name} {page}</p></body></html>")
    names = versions.newest_first(["v0.1.0", "v0.2.0"])
    for _ in range(2):  # a second time changes nothing
        versions.join(tmp_path, names)
    assert (tmp_path / "v0.2.0" / "new.html").read_text().count("<script") == 1
    page, browser.shown = browser.page, None
    page.goto((tmp_path / "index.html").as_uri())
    page.wait_for_selector("text=v0.2.0 index")  # the front page leads to the newest
    for start, other, shown in (
        ("v0.2.0/a/both", "v0.1.0", "v0.1.0 a/both"),
        ("v0.1.0/a/both", "v0.2.0", "v0.2.0 a/both"),
        ("v0.2.0/new", "v0.1.0", "v0.1.0 index"),
    ):
        page.goto((tmp_path / f"{start}.html").as_uri())
        assert page.get_by_label("Version").locator("option:checked").inner_text() == start.split("/")[0]
        page.get_by_label("Version").select_option(label=other)
        page.wait_for_selector(f"text={shown}")
