"""The README's example runs as it stands, and shows what it promises."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
@pytest.mark.timeout(900)  # 35 s of a quiet core
def test_the_example_of_the_readme_lowers_the_barrier(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    naive, aligned = map(float, capsys.readouterr().out.split())
    assert naive > 0.4
    assert aligned < naive / 20


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
