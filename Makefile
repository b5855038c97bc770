# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
GROUNDTRUTH ?= ../shared/groundtruth

.PHONY: setup demo test test-tensorflow test-jax test-mxnet test-onnx test-vision check lint types imports docs accuracy bench fuzz clean

setup: .venv/.installed-dev

# The demo needs only torch; the tests and checks need more. Each stamp is renewed when its inputs change.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.installed-demo: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[torch]"
	touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@ .venv/.installed-demo

demo: .venv/.installed-demo
	$(BIN)/oomcast estimate zoo:resnet50 --batch-size 64 --device rtx-3090

# The tests wait for processes of their own half of the time: two at once take little more memory, and half as long.
WORKERS ?= 2
test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Frameworks do not share an environment: each one's tests run in their own and are skipped elsewhere.
.venv-tensorflow/.installed: pyproject.toml constraints-tensorflow.txt
	$(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/pip install -q -c constraints-tensorflow.txt -e ".[campaign]" tensorflow-cpu keras pytest hypothesis
	touch $@

# Keras' steps are compiled by XLA's compiler, which comes with JAX: asked in that environment.
test-tensorflow: .venv-tensorflow/.installed .venv-jax/.installed
	OOMCAST_PYTHON_JAX=$(CURDIR)/.venv-jax/bin/python .venv-tensorflow/bin/python -m pytest tests/capture/tensorflow

.venv-jax/.installed: pyproject.toml constraints-jax.txt
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/pip install -q -c constraints-jax.txt -e ".[jax-gpu]" flax equinox keras pytest hypothesis
	touch $@

test-jax: .venv-jax/.installed
	.venv-jax/bin/python -m pytest tests/capture/jax

# MXNet runs with Python 3.10 and 3.11 only: say which one, if it is not python3 (make test-mxnet PYTHON=python3.11).
.venv-mxnet/.installed: pyproject.toml constraints-mxnet.txt
	$(PYTHON) -m venv .venv-mxnet
	.venv-mxnet/bin/pip install -q -c constraints-mxnet.txt -e . mxnet numpy pytest hypothesis
	touch $@

test-mxnet: .venv-mxnet/.installed
	.venv-mxnet/bin/python -m pytest tests/capture/mxnet

.venv-onnx/.installed: pyproject.toml constraints-onnx.txt
	$(PYTHON) -m venv .venv-onnx
	.venv-onnx/bin/pip install -q -c constraints-onnx.txt -e . onnx onnxruntime pytest hypothesis
	touch $@

test-onnx: .venv-onnx/.installed
	.venv-onnx/bin/python -m pytest tests/capture/onnx

# torchvision beside a torch that it was not built for, as on machines without a GPU.
.venv-vision/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vision
	.venv-vision/bin/pip install -q -c constraints.txt -e ".[torchvision]" pytest hypothesis
	touch $@

test-vision: .venv-vision/.installed
	.venv-vision/bin/python -m pytest tests/capture/test_vision_operators.py

lint: setup
	$(BIN)/ruff check src tests lab examples
	$(BIN)/ruff format --check src tests lab examples

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# The site, in an environment of its own. --strict: a broken link or a name that is not there is an error.
.venv-docs/.installed: constraints-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install -q -c constraints-docs.txt mkdocs-material "mkdocstrings[python]" ruff
	touch $@

docs: .venv-docs/.installed
	.venv-docs/bin/mkdocs build --strict

check: lint types imports docs test test-tensorflow test-jax test-mxnet test-onnx test-vision

# How right the estimates are, on a folder of measurements; without one, on the cited figures that are in lab/.
accuracy: setup
	$(BIN)/python -m lab accuracy $(wildcard $(GROUNDTRUTH))

# Hostile inputs of every kind, for some minutes; `make fuzz SECONDS=3600` for an hour.
SECONDS ?= 300
fuzz: setup
	$(BIN)/python -m lab fuzz --inputs 500000 --seconds $(SECONDS)

bench: setup
	$(BIN)/python -m lab bench --truth $(GROUNDTRUTH)

clean:
	rm -rf .venv .venv-tensorflow .venv-jax .venv-mxnet .venv-onnx .venv-vision .venv-docs site .mypy_cache .ruff_cache .pytest_cache build dist
