# Two commands do everything on a bare clone: `make demo` and `make test`. Both create .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
JOBS ?= 2
COUNT ?= 100
# A few files for each stage: data, symmetry, posteriors, matching, inference, evaluation, folding, store, laboratory, command line.
QUICK := $(addprefix tests/test_, imports.py api.py files.py data_arrays.py spec.py discover_rules.py verify.py posteriors.py \
  align.py ensemble.py hmc.py marginal.py barrier.py metrics.py compact.py store.py campaign_status.py cli_main.py)

# Pyright computes on one core for most of a minute: beside the tests, so that the other one is not idle. Either may fail.
tested_beside_types = $(BIN)/pyright & types=$$!; \
  $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(1); tests=$$?; wait $$types && exit $$tests

.PHONY: demo test test-torch check torture bench docs docs-versions format clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/.runtime  ## two posteriors on embedded digits, the barrier, the alignment, a report page
	$(BIN)/bayesin demo --out demo

test: .venv/.dev  ## every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call tested_beside_types,)

test-torch: .venv/.torch  ## networks of PyTorch and its libraries; installs torch, torchvision, timm, transformers
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/pytorch tests/test_torch.py src/bayesin/models/torch.py \
	  tests/test_examples.py::test_pytorch_networks tests/test_examples.py::test_pytorch_ensemble \
	  "tests/test_tutorial.py::test_a_chapter_runs_as_it_stands[pytorch-checkpoint]"

check: .venv/.dev  ## lint, types and a quick test of every stage, in about ninety seconds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(call tested_beside_types,-m "not slow" $(QUICK))

torture: .venv/.dev  ## kills, full disks, bad files, load: the table of faults (COUNT=10 for a tenth of the tries)
	-$(PIP) install --quiet --constraint constraints.txt --editable '.[torture]'
	cd tests && ../$(BIN)/python -m torture --count $(COUNT) $(if $(findstring command,$(origin JOBS)),--jobs $(JOBS)) --out ../torture.json

bench: .venv/.dev  ## speed in one table: ours, the plain way, the floor, the ratio, and the ratio last committed
	$(BIN)/python benchmarks/table.py

docs: .venv/.dev  ## the documentation, without network and without warnings
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build

docs-versions: .venv/.dev  ## the documentation of every release and of this tree, side by side in site/
	$(BIN)/python docs/versions.py site

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist demo site docs/_build torture.json

# The versions in constraints.txt are the ones tested, so that a clone still installs next year.
.venv/.runtime: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/.dev: .venv/.runtime
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The three libraries are constrained with torch: a torchvision of another release would replace it. torch==2.13.0 takes
# the CPU build where pip is offered one, as by PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS; else it brings gigabytes of CUDA.
.venv/.torch: .venv/.dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[torch]' torchvision timm transformers
	@touch $@
