PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers
LOCKED := tensorboard mujoco mp4 onnx frames
DOCS   := .venv-docs

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench bench-peers docs seeds table2 systems locomotion monitor-check install-check kills fuzz lock clean

help:  ## what each target does
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: $(READY)  ## train PhyB on the liquidation task and write a report (minutes)
	$(BIN)/phyb train liquidation --resume

test: lint  ## linters, types and all tests
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(READY)  ## ruff, pyright and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## timings, as ratios taken in one run (about twenty minutes)
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/overhead.py

$(PEERS)/.ready: benchmarks/peers-requirements.txt
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

bench-peers: $(READY) $(PEERS)/.ready  ## one update of TD3+BC, IQL and CQL against d3rlpy's (installs torch)
	$(BIN)/python benchmarks/peers.py

$(DOCS)/.ready: docs/requirements.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

docs/notebooks/%.md: docs/notebooks/%.py docs/notebooks.py $(READY)
	$(BIN)/python docs/notebooks.py $< $@

docs: $(DOCS)/.ready $(patsubst %.py,%.md,$(wildcard docs/notebooks/*.py))  ## run the notebooks, build the site in build/site
	$(DOCS)/bin/zensical build --strict --clean

table2: $(READY)  ## the paper's liquidation table, into README and docs (hours; resumable)
	$(BIN)/python benchmarks/table2.py

seeds: $(READY)  ## the five runs of the README's table (half an hour; resumable)
	for seed in 0 1 2 3 4; do $(BIN)/phyb train liquidation --seed $$seed --resume || exit 1; done
	$(BIN)/python benchmarks/seeds.py $(foreach s,0 1 2 3 4,runs/liquidation-phyb-seed$(s)) --out results/liquidation-cpu.json

systems: $(READY)  ## every system on two locomotion logs in DATA=... (hours; resumable)
	$(BIN)/python benchmarks/systems.py $(DATA)

locomotion: $(READY)  ## the runs of docs/results.md on the logs in DATA=... (hours; resumable)
	$(BIN)/python benchmarks/locomotion.py $(DATA)

monitor-check: $(READY)  ## false and true alarms of phyb monitor, on liquidation and the logs in DATA=... (minutes)
	$(BIN)/python benchmarks/monitor.py $(DATA)

install-check:  ## build the wheel, install it in empty environments, time the import (needs uv)
	$(PYTHON) benchmarks/install.py

kills: $(READY)  ## kill small runs of phyb and phyb-search 100 times and compare (half an hour)
	$(BIN)/python tests/faults/kills.py --kills 100

fuzz: $(READY)  ## 20,000 damaged and forged files through every reader (minutes)
	$(BIN)/python tests/faults/fuzz.py --inputs 20000

lock:  ## pin every dependency anew (needs uv)
	uv pip compile pyproject.toml $(foreach extra,$(LOCKED),--extra $(extra)) --group dev --universal --python-version 3.11 \
		--no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock
	uv pip compile --group docs --universal --python-version 3.11 \
		--no-emit-index-url --custom-compile-command "make lock" --output-file docs/requirements.lock

clean:  ## remove the virtual environment and caches, keep runs
	rm -rf $(VENV) $(PEERS) $(DOCS) build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info docs/notebooks/*.md docs/notebooks/*.png
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
