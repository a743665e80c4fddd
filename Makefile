# `make` alone lists the commands. Each sets up what it needs in .venv on its first run.
#   PYTHON=python3.12   the Python to make .venv with        CUDA=12   for CUDA 12 drivers
#   ARGS='…'            more arguments for the command

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; \
	done; echo python3)
RUN := .venv/bin/python
WORKERS ?= 2
export CUDA

.DEFAULT_GOAL := help
.PHONY: help lab setup dev test fuzz tour lint format doctor release bench differential calibrate judge pin clean

help:
	@echo 'GPU software pipelining, an interactive course. Commands:'
	@echo '  make lab      set up, then open JupyterLab on the first page'
	@echo '  make test     set up, then run the tests'
	@echo '  make fuzz     5,000 random programs: checker against brute force; 5,000 mutated kernels'
	@echo '  make tour     run every lesson headless and print a line for each'
	@echo '  make doctor   look at driver, compiler and versions, and say how to fix them'
	@echo '  make release  make exercises/ from solutions/, and the archive that students get'
	@echo '  make bench    measure what the course promises about its own speed'
	@echo '  make differential   compare the virtual GPU with this machine'"'"'s GPU, kernel by kernel'
	@echo '  make calibrate   measure this GPU for the virtual clock      make judge   judge that clock'
	@echo '  make lint     check style, types and notebooks      make format   repair style'
	@echo '  make clean    remove .venv and caches (notebooks stay)'
	@echo 'No NVIDIA GPU is needed. More: README.md, docs/getting_started.md'

setup:
	@$(PYTHON) tools/set_up.py course

dev:
	@$(PYTHON) tools/set_up.py dev

lab: setup
	@$(RUN) -m tools.lab $(ARGS)

test: dev
	@$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)
	@echo 'make test: all tests above passed, on the device that `make doctor` names'

fuzz: dev
	@PYTHONPATH=tests $(RUN) -m fuzz.runner 5000
	@MUTATIONS=5000 $(RUN) -m pytest -q --timeout 3600 tests/test_mutations.py
	@echo 'make fuzz: the checker and brute force agree on every program above, and no mutation'
	@echo '           of 5,000 crashed or hung the virtual GPU'

tour: setup
	@$(RUN) -m tools.tour $(ARGS)

doctor: setup
	@$(RUN) -m course_lib.doctor
	@echo 'make doctor: the course works here; more in docs/getting_started.md'

release: setup
	@$(RUN) -m tools.release $(ARGS)

bench: setup
	@$(RUN) -m tools.bench $(ARGS)

differential: dev
	@$(RUN) -m tools.differential --racecheck 120 --write docs/differential.md $(ARGS)

calibrate: dev
	@$(RUN) -m tools.calibrate $(ARGS)

judge: dev
	@$(RUN) -m tools.judge_clock write $(ARGS)
	@echo 'make judge: docs/virtual_clock.md has the table; new times come from a GPU: judge_clock measure'

lint: dev
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(RUN) -m tools.notebooks check
	@echo 'make lint: style, types and notebooks are in order'

format: dev
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .
	@$(RUN) -m tools.notebooks fix
	@echo 'make format: repaired what can be repaired without thought; see git diff'

pin: dev
	@$(PYTHON) tools/set_up.py --pin

clean:
	@rm -rf .venv .pytest_cache .ruff_cache .mypy_cache
	@find . -name __pycache__ -type d -not -path './.*' -prune -exec rm -rf {} +
	@echo 'make clean: removed .venv and caches; compiled kernels stay in ~/.cache/course_lib'
