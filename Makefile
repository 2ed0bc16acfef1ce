PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test format lint type docs clean

demo: $(INSTALLED)
	$(BIN)/python -m sb3_async.demo $(ARGS)

test: lint type
	$(BIN)/python -m pytest $(ARGS)

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(INSTALLED)
	$(BIN)/mypy

docs: $(INSTALLED)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build

# torch first: without the pin pip would take the newest one.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv docs/_build demo_output *.egg-info
