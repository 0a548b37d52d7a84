"""Alignment sharded over devices, as `benchmarks/devices.py` simulates it."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_layers_sharded_over_four_devices_give_the_permutations_of_align():
    script = Path(__file__).parents[1] / "benchmarks" / "devices.py"
    run = subprocess.run([sys.executable, script, "--devices", "4"], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 devices" in run.stdout
    assert "same permutations: yes" in run.stdout
