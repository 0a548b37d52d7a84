"""Several versions of the documentation side by side, with a switch between them, as plain files.

    python docs/versions.py site                 # every tag v*, and the working tree as "dev"
    python docs/versions.py site v0.1.0 main     # these commits, and the working tree

Each version goes to a folder of its own name, built from its own sources; `site/index.html` leads to the newest
release, or to dev where there is none. The switch is a script that every page loads from the root of the site: it
needs no server, keeps the page where the other version has it too, and old versions learn of the newest one.
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEV = "dev"  # the working tree
SWITCH = HERE / "_static" / "version-switch.js"


def build(sources: Path, folder: Path, name: str) -> None:
    """Builds the documentation of one checkout; its own package is the one that is documented."""
    options = ["-D", f"release={name}", "-D", f"version={name}", "-D", f"html_title=bayesin {name}"]
    environment = os.environ | {"PYTHONPATH": str(sources / "src")}
    with tempfile.TemporaryDirectory() as trees:
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", trees, *options, "docs", str(folder)]
        subprocess.run(command, cwd=sources, env=environment, check=True)


def join(site: Path, names: list[str]) -> None:
    """Gives every page of every version the switch, and the site its front page. A second time changes nothing.

    Args:
        site: holds one folder of HTML for each name.
        names: versions, the one that the front page leads to first.
    """
    pages = {name: sorted(_pages(site / name)) for name in names}
    data = json.dumps([{"name": name, "pages": pages[name]} for name in names])
    (site / "versions.js").write_text(f"window.bayesinVersions = {data};\n{SWITCH.read_text()}", encoding="utf-8")
    front = f"{names[0]}/index.html"
    redirect = f'<meta http-equiv="refresh" content="0; url={front}"><a href="{front}">bayesin {names[0]}</a>'
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>bayesin</title>'
    (site / "index.html").write_text(f"{head}{redirect}</html>\n", encoding="utf-8")
    for name in names:
        for page in pages[name]:
            path = site / name / page
            text = re.sub(r"<script data-versions.*?</script>\n?", "", path.read_text(encoding="utf-8"))
            root = "../" * (page.count("/") + 1)
            here = f'data-versions="{root}" data-version="{name}" data-page="{page}"'
            tag = f'<script {here} src="{root}versions.js"></script>\n'
            path.write_text(text.replace("</body>", f"{tag}</body>"), encoding="utf-8")


def newest_first(tags: list[str]) -> list[str]:
    """Releases by their numbers.

    Example:
        >>> newest_first(["v0.9.0", "v0.10.1", "v0.10.0"])
        ['v0.10.1', 'v0.10.0', 'v0.9.0']
    """
    return sorted(tags, key=lambda tag: [int(part) for part in re.findall(r"\d+", tag)], reverse=True)


def _pages(folder: Path) -> list[str]:
    return [page.relative_to(folder).as_posix() for page in folder.rglob("*.html")]


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(HERE.parent), *words], check=True, capture_output=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="folder for the whole site")
    parser.add_argument("refs", nargs="*", help="tags or commits; every tag v* where none is given")
    chosen = parser.parse_args()
    refs = chosen.refs or newest_first(_git("tag", "--list", "v*").decode().split())
    site = chosen.site.resolve()
    site.mkdir(parents=True, exist_ok=True)
    for ref in refs:
        with tempfile.TemporaryDirectory() as sources:
            with tarfile.open(fileobj=io.BytesIO(_git("archive", ref))) as archive:
                archive.extractall(sources, filter="data")
            shutil.rmtree(site / ref, ignore_errors=True)
            build(Path(sources), site / ref, ref)
    shutil.rmtree(site / DEV, ignore_errors=True)
    build(HERE.parent, site / DEV, DEV)
    join(site, [*refs, DEV])
    print(f"{site / 'index.html'}: {', '.join([*refs, DEV])}")


if __name__ == "__main__":
    main()
