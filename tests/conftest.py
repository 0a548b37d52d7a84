"""What all tests share: one cache of compiled programs, strict promotion, and the real data sets this machine has."""

import fcntl
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import jax
import pytest

PROMOTING = ("test_discover", "test_examples", "test_docs", "test_readme")  # networks as users write them
REPOSITORY = Path(__file__).resolve().parents[1]
UNPACK = REPOSITORY.parent / "shared" / "data" / "unpack.py"
TRAINING = ("test_demo", "test_examples", "test_readme", "test_tutorial")  # run longer than they compile
COMPILED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
MOST_COMPILED = 2 << 30  # bytes of compiled programs that one session may leave to the next
# XLA's newer kernels of fusions go through a compiler of their own, and code that is split for threads through LLVM
# in parts: without either, a program compiles in a third of the time.
FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# Two programs for the same numbers may differ in their last bits when compiled in this quick way; tests marked
# `as_shipped` compare them compiled as users have them, in a process of their own (test_as_shipped.py).
AS_SHIPPED = "BAYESIN_TESTS_AS_SHIPPED" in os.environ


def pytest_configure(config):
    """Most of the time goes into compiling, so programs are compiled once for all workers and the verbs they start.

    A session leaves them to the next in pytest's own cache; the user's cache of `bayesin` is left alone.
    """
    gc.set_threshold(20_000, 20, 20)  # tracing makes objects by the thousand, and keeps most of them
    given = os.environ.get("XLA_FLAGS", "")
    if FLAGS not in given and not AS_SHIPPED:  # XLA reads them with the first program, as do processes of tests
        os.environ["XLA_FLAGS"] = f"{FLAGS} {given}"
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # a worker, or a choice of whoever runs the tests
        return
    kept = getattr(config, "cache", None)
    folder = kept.mkdir("compiled") if kept is not None else Path(tempfile.mkdtemp(prefix="bayesin-tests-compiled-"))
    if kept is None:
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    elif sum(entry.stat().st_size for entry in os.scandir(folder)) > MOST_COMPILED:
        shutil.rmtree(folder)
        folder.mkdir()
    os.environ |= COMPILED | {"JAX_COMPILATION_CACHE_DIR": str(folder)}
    for name, value in COMPILED.items():  # JAX read the environment when it was imported
        jax.config.update(name.lower(), int(value))
    jax.config.update("jax_compilation_cache_dir", str(folder))


def pytest_collection_modifyitems(config, items):
    """Tests marked `as_shipped` run where programs are compiled so, and nothing else does there.

    Files that compile with all optimisations go first: what they compiled is forgotten once, not after each of them.
    """
    elsewhere = [item for item in items if (item.get_closest_marker("as_shipped") is not None) != AS_SHIPPED]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item not in elsewhere]
    items.sort(key=lambda item: not item.path.name.startswith(TRAINING))


@pytest.fixture(autouse=True)
def _no_silent_promotion(request):
    """No dtype or rank is promoted in silence: what runs here runs the same under x64 and in half precision.

    Tests marked `promotes`, and the files above, use libraries or networks as users write them, `x @ w + b`.
    """
    if request.node.get_closest_marker("promotes") is not None or request.path.name.startswith(PROMOTING):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module", autouse=True)
def _quickly_compiled(request):
    """Most programs here run for less time than they take to compile, so XLA leaves out most optimisations.

    The variable reaches the verbs that a test starts: one program has the same bits everywhere. The files above
    train for long. What was compiled in one way is forgotten before the other, whose last bits differ.
    """
    quickly = not (AS_SHIPPED or request.path.name.startswith(TRAINING))
    if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") != str(int(quickly)):
        gc.unfreeze()
        jax.clear_caches()
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quickly))
        jax.config.update("jax_disable_most_optimizations", quickly)


@pytest.fixture(scope="module", autouse=True)
def _kept_is_not_searched_again(_quickly_compiled):
    """What a file leaves behind, millions of objects in JAX's caches in the end, is not searched for garbage again.

    Each full collection would look at all of it: a second at the end of a session, over and over.
    """
    gc.collect()  # what is frozen stays for good, so that garbage goes first
    gc.freeze()


@pytest.fixture
def svg_alone(monkeypatch):
    """Figures that nobody looks at are drawn in one format of three: the PDF alone takes as long as the other two.

    All three are drawn for every kind of figure where figures are tested (test_report_figures.py, test_demo.py,
    test_cli_compact.py, test_reproduce_files.py).
    """
    from bayesin.lab.report import figures

    monkeypatch.setattr(figures.save, "__defaults__", (("svg",),))


@pytest.fixture(scope="session")
def as_shipped() -> dict[str, str]:
    """The environment of a process of pytest that compiles as users do, and runs the tests that are marked so."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # A value that does not begin with a flag would be the name of a file to XLA, a space too.
    flags = inherited.get("XLA_FLAGS", "").replace(FLAGS, "").strip()
    return inherited | {"XLA_FLAGS": flags, "BAYESIN_TESTS_AS_SHIPPED": "1"}


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the real data sets: `$BAYESIN_DATA`, or `data/`, which is unpacked once if it can be."""
    if os.environ.get("BAYESIN_DATA"):
        return Path(os.environ["BAYESIN_DATA"])
    folder = REPOSITORY / "data"
    if not folder.is_dir() and UNPACK.is_file():
        _unpack(folder)
    if not folder.is_dir():
        pytest.skip("no real data: neither $BAYESIN_DATA nor data/ is here ('bayesin data fetch mnist' gets it)")
    return folder


@pytest.fixture(scope="session")
def real(data_root):
    """Returns `real(name)`: the root below which a real data set lies, or skips the test."""
    from bayesin.data import SOURCES, locate

    def root_of(name: str) -> Path:
        found = locate(SOURCES[name], data_root)
        if found is None or found.missing(SOURCES[name]):
            pytest.skip(f"{name} is not on this machine ('bayesin data fetch {name}' gets it)")
        return data_root

    return root_of


def _unpack(folder: Path) -> None:
    """Writes the packed data sets beside `folder`, then gives them its name; one worker does it for all."""
    with open(Path(tempfile.gettempdir()) / f"bayesin-tests-data-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        work = Path(tempfile.mkdtemp(prefix=".tmp-data-", dir=folder.parent))
        try:
            for names in (["mnist", "cifar100"], ["cifar10"]):  # CIFAR-10 may need a network; the others do not
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run([sys.executable, str(UNPACK), str(work), *names], capture_output=True, timeout=120)
            if any(work.iterdir()):
                work.chmod(0o755)
                os.replace(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
