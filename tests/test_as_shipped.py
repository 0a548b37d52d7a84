"""Programs compiled as users have them, where the quick way of the other tests changes last bits."""

import subprocess
import sys
from pathlib import Path

FILES = [str(Path(__file__).with_name(name)) for name in ("test_paths.py", "test_posteriors.py")]


def test_promises_to_the_bit_hold_as_users_compile(as_shipped):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *FILES]
    done = subprocess.run(command, env=as_shipped, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout  # 5 where no test is marked
