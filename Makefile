# The two commands of the README: `make report` and `make test`. Both make what they need.
PYTHON ?= python3
VENV ?= .venv
TEST_VENV ?= .venv-test
OUT ?= stream-conformance-out
JOBS ?= 2
# Another index for torch, for instance a vendor's CPU builds.
TORCH_INDEX ?=

PIP_INTO := pip_into() { venv=$$1; shift; $$venv/bin/python -m pip install --quiet --disable-pip-version-check "$$@"; }; pip_into
SAY := echo "make:"

.PHONY: report test benchmark codegen lint clean

report: $(VENV)/.made
	@$(VENV)/bin/python -m conformance.tour $(OUT)

test: $(TEST_VENV)/.made
	$(TEST_VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Times, so one after the other, and on a machine with nothing else to do.
benchmark: $(TEST_VENV)/.made
	$(TEST_VENV)/bin/python -m pytest tests/benchmarks -m benchmark -s $(ARGS)

# The gates' code for devices that are not here, and what could not be compiled for want of a compiler:
# NVRTC (the wheel nvidia-cuda-nvrtc) and triton, neither of which the suite installs.
codegen: $(TEST_VENV)/.made
	$(TEST_VENV)/bin/python -m pytest tests/test_codegen.py -v -rs $(ARGS)

lint: $(TEST_VENV)/.made
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check .
	$(TEST_VENV)/bin/mypy

# The core only, never torch. Where $(PYTHON) has torch, a .pth file names that interpreter's
# site-packages: --system-site-packages would see only the base interpreter, and vendor images keep
# torch in a virtual environment.
$(VENV)/.made: pyproject.toml
	@echo "making $(VENV) (the core's packages, never torch)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INTO) $(VENV) -e . || { $(SAY) "the core's packages could not be installed into $(VENV): this needs a network, or an index in PIP_INDEX_URL" >&2; exit 1; }
	@$(PYTHON) -c 'import importlib.util as u, pathlib; s = u.find_spec("torch"); print(pathlib.Path(s.origin).parent.parent if s and s.origin else "")' \
		| { grep . || true; } > "$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vendor-torch.pth"
	@touch $@

# Without --no-compile every module of torch would be compiled, for half of the time that this takes.
$(TEST_VENV)/.made: pyproject.toml
	@echo "making $(TEST_VENV) (the test packages, torch's CPU build among them)"
	@$(PYTHON) -m venv --clear $(TEST_VENV)
	@$(if $(TORCH_INDEX),$(PIP_INTO) $(TEST_VENV) torch==2.13.0 --index-url $(TORCH_INDEX),true)
	@$(PIP_INTO) $(TEST_VENV) --no-compile -e '.[test]' || { $(SAY) "the test packages could not be installed into $(TEST_VENV): this needs a network, or an index in PIP_INDEX_URL (TORCH_INDEX= for torch)" >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) $(TEST_VENV) $(OUT) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
