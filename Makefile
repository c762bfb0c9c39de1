.DEFAULT_GOAL := help
.PHONY: help demo run test soak lint bench test-containers clean
PYTHON ?= python3
BIN := .venv/bin
# One more than the two cores that it is made for: a worker waits about half of its time.
WORKERS ?= 3
T ?= tests
SOAKED ?= tests/fault tests/integration/test_session_wire.py tests/integration/test_session_cases.py tests/contract/test_fuzz.py

help: ## this list
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: .venv/.installed ## the environment, from requirements.lock

.venv/.installed: requirements.lock pyproject.toml libs/sdk/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; PYTHON=... names one" >&2; exit 1; }
	@echo "installing what it needs into .venv: about 500 MB, a few minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e libs/sdk -e .
	@touch $@

demo: .venv ## play a conversation and tell what was remembered; FILE=path plays another
	@$(BIN)/python -m services.standalone.demo $(FILE)

run: .venv ## serve everything on http://127.0.0.1:8080 until Ctrl-C
	@exec $(BIN)/python -m services.standalone

test: .venv ## the whole suite, faults in their short form; T=path narrows it
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(T)

soak: .venv ## the faults at full length and 200 random kills
	SOAK=1 $(BIN)/python -m pytest -s $(SOAKED)

lint: .venv ## ruff, mypy, import rules, house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/contract/test_house_rules.py

build/peers/.installed: tests/bench/peers/requirements.lock
	test -x build/peers/bin/python || $(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

bench: .venv build/peers/.installed ## measure, beside the peers, and write build/bench.json; FULL=1 adds the large rows
	$(BIN)/python -m tests.bench

test-containers: .venv ## the integration suite on testcontainers, and the end-to-end test on docker compose
	$(BIN)/python -m tests.support.containers

clean: ## remove what was built, not .memstream
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
