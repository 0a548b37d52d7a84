"""Programs compiled as users have them, where the quick way of the other tests changes last bits."""

import os
import subprocess
import sys

from conftest import FLAGS, REPOSITORY

FILES = ("test_paths.py", "test_posteriors.py")


def test_promises_to_the_bit_hold_as_users_compile():
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    flags = inherited.get("XLA_FLAGS", "").replace(FLAGS, "").strip()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"tests/{name}" for name in FILES)],
        env=inherited | {"XLA_FLAGS": flags, "BAYESIN_TESTS_AS_SHIPPED": "1"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout  # 5 where no test is marked
