# Every target makes the virtual environment it needs; a second run is fast.
# PYTHON picks the interpreter (3.11 or later), VENV the place; COUNT is how many
# calls the fuzzers make, SEED which; ROOM limits lint, types and tests to one room.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= auto
COUNT  ?= 10000000
SEED   ?= $(shell date +%Y%m%d)

# PyTorch is pinned so that every run takes the same build, from a cache where there
# is one: the newest may bring gigabytes of CUDA that nothing here needs.
TORCH  ?= torch==2.13.0
# The corpus has the verdicts of this version's machine code.
TRITON := triton==3.9.0
MMASIM := mmasim==2.1.1
CUTE := nvidia-cutlass-dsl==4.8.1
PYPTX := pyptx==0.1.1
CUTLASS := nvidia-cutlass==4.2.0.0
WARP := warp-lang==1.19.0
TILELANG := tilelang==0.1.15
CUTILE := cuda-tile==1.7.0 nvidia-cuda-tileiras==13.4.92
CUDA_CORE := cuda-core==1.2.2 cuda-bindings==13.5.0
PYCUDA := pycuda==2026.1
HELION := helion==1.5.1
NUMBA := numba==0.68.1 numba-cuda==0.30.4 nvidia-nvvm==13.4.92 nvidia-cuda-nvrtc==13.4.92 nvidia-cuda-runtime==13.4.92 \
  nvidia-cuda-crt==13.4.92

# The tests start many processes, and none should compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# What is imported is compiled then; compiling all that is installed takes far longer.
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL)
VERSIONS := tests/versions.txt
KNOWN := $(PIP) --constraint $(VERSIONS)

.PHONY: demo versions test long thorough torch triton frontends cutlass published corpus hopper lint types unit fuzz bounds bench bench-peers dist pages docs node cairo compiler browser explorer looks clean help

help:           ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.base  ## install, then run the example on the CPU
	$(BIN)/python examples/demo.py

# A room is a folder or a module of src/fragmenta, or of a folder there.  Its tests, the
# doctests in it, and the order of the rooms are checked.  Without ROOM, everything is.
ifdef ROOM
  SOURCES := $(wildcard $(foreach each,src/fragmenta src/fragmenta/*,\
    $(each)/$(ROOM) $(each)/$(ROOM).py))
  TESTS := $(SOURCES) $(wildcard tests/$(ROOM) tests/test_$(ROOM).py) tests/test_house.py
  ifeq ($(SOURCES),)
    $(error there is no room $(ROOM); the rooms are $(sort $(notdir $(patsubst \
      %/__init__.py,%,$(wildcard $(addsuffix /__init__.py,src/fragmenta/* src/fragmenta/*/*))))))
  endif
endif

# The pages have targets of their own, `docs` and `looks`, which run these tests.
OF_DOCS := tests/test_docs.py tests/test_site.py tests/test_notebooks.py \
  tests/ptx/hazards/test_pages.py
OF_PAGES := $(addprefix tests/view/test_,explorer_memory.py explorer_numbers.py \
  explorer_page.py replay_origins.py replay_page.py replay_products.py replay_watch.py)

# mypy uses one core, so the tests begin beside it; both run to their end.
test: lint  ## install, then lint, check types, run all tests but `long` ones and of pages; ROOM=simt: of one room
	@+$(MAKE) --no-print-directory --keep-going -j 2 types unit

torch: $(VENV)-torch/.stamp  ## PyTorch (gigabytes) in its own environment, and its tests
	$(VENV)-torch/bin/pytest -q -n $(JOBS) src/fragmenta/hopper/torch tests/torch \
	  tests/sparse/test_exchange.py tests/tensor_memory/test_scaled_mm.py tests/test_docs.py tests/registers/test_dtype.py

# What is compiled is kept in the environment, so that a second run is fast.
triton: $(VENV)-triton/.stamp  ## Triton, Gluon, Helion and Inductor in an environment of their own, and their tests
	TRITON_CACHE_DIR="$(abspath $(VENV)-triton)/cache" \
	  $(VENV)-triton/bin/pytest -q -n $(JOBS) src/fragmenta/frontends/triton tests/triton

# What is compiled is kept in the environment.
frontends: $(VENV)-frontends/.pycuda  ## kernels of numba-cuda, Warp, TileLang, cuda.core, PyCUDA and cuTile, in an environment of their own
	FRAGMENTA_CACHE="$(abspath $(VENV)-frontends)/cache" \
	  $(VENV)-frontends/bin/pytest -q -n $(JOBS) --dist loadfile src/fragmenta/frontends/*.py tests/frontends

# The GEMMs of CUTLASS's C++ headers come with FULL=1 only: nvcc takes some minutes for
# them.  What it makes is kept in the environment.
cutlass: $(VENV)-cutlass/.stamp $(if $(FULL),$(VENV)-cutlass/.nvcc)  ## kernels of CuTe's Python compiler and of pyptx; FULL=1: CUTLASS, too
	CUTLASS_KERNELS="$(abspath $(VENV)-cutlass)/kernels" \
	  $(VENV)-cutlass/bin/pytest -q -n $(JOBS) tests/cutlass \
	  $(if $(FULL),,--ignore tests/cutlass/test_gemms.py)

# MMA-Sim builds a small library with ninja, g++ and OpenMP when first imported.
JUDGE := PATH="$(abspath $(VENV)-published)/bin:$$PATH" \
  TORCH_EXTENSIONS_DIR="$(abspath $(VENV)-published)/extensions" \
  PYTHONPATH=.:published:benchmarks $(VENV)-published/bin/python

published: $(VENV)-published/.stamp  ## every row against MMA-Sim; FULL=1: a million elements of each
	$(if $(RECORD),$(JUDGE) published/record.py)
	$(JUDGE) -m pytest -q published
	$(if $(FULL),$(JUDGE) published/compare.py)
	$(JUDGE) published/ratio.py

# Without PART=small, all of it takes an hour or two.  KEEP=1 writes docs/corpus.json.
PART ?= all

corpus: $(VENV)-corpus/.stamp  ## other people's kernels; PART=small: some minutes of them
	TRITON_CACHE_DIR="$(abspath $(VENV)-corpus)/cache" \
	CUTLASS_KERNELS="$(abspath $(VENV)-corpus)/kernels" PYTHONPATH=. \
	  $(VENV)-corpus/bin/python -m corpus --part $(PART) $(if $(KEEP),--keep --interpret)

lint: $(VENV)/.test  ## ruff, rules and format
	$(BIN)/ruff check $(or $(TESTS),.)
	$(BIN)/ruff format --check $(or $(TESTS),.)

types: $(VENV)/.test  ## mypy --strict
	$(BIN)/mypy $(SOURCES)

unit: $(VENV)/.test $(if $(filter-out view,$(ROOM)),,node cairo) $(if $(filter-out programs,$(ROOM)),,compiler)  ## the tests alone; ROOM=simt: of one room
	$(BIN)/pytest $(if $(ROOM),-q) -n $(JOBS) --dist loadgroup \
	  $(or $(TESTS),$(addprefix --ignore=,$(OF_DOCS) $(OF_PAGES)))

long: $(VENV)/.test node cairo compiler  ## the tests that take seconds each, which `test` leaves out
	$(BIN)/pytest -m long -n $(JOBS) --dist loadgroup

thorough: $(VENV)/.test node cairo compiler  ## the tests alone, with every case that repeats a kind
	FRAGMENTA_THOROUGH=1 FRAGMENTA_HOPPER=1 $(BIN)/pytest -n $(JOBS) --dist loadgroup

fuzz: $(VENV)/.test  ## COUNT hostile calls on every core; the result into docs/verification
	$(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED) \
	  --output docs/verification/fuzz.json
	$(BIN)/python docs/generate.py

bounds: $(VENV)/.test  ## COUNT hostile accesses between guard pages, and every bound removed
	$(BIN)/python -m tests.fuzz.bounds --count $(COUNT) --seed $(SEED) \
	  --output docs/verification/bounds.json
	$(BIN)/python docs/generate.py

hopper: $(VENV)/.test  ## every launch watched: own kernels, Triton's, recorded ones; mutants
	FRAGMENTA_THOROUGH=1 FRAGMENTA_HOPPER=1 $(BIN)/pytest -q -n $(JOBS) tests/ptx/hopper tests/kernels tests/ptx/hazards tests/ptx/test_launches.py tests/ptx/test_triton_hopper.py tests/ptx/test_triton_blackwell.py

bench: $(VENV)/.test  ## the benchmarks on the CPU, one after the other
	$(BIN)/pytest benchmarks --ignore benchmarks/gpu --ignore benchmarks/peers -s --benchmark-columns=min,median,rounds

# What is compiled is kept in the environment.  CASES="matmul saxpy" takes some of them;
# the lines of the others stay in docs/benchmarks/peers.json.
bench-peers: $(VENV)-peers/.stamp $(VENV)/.docs  ## beside Triton's interpreter, MMA-Sim, numba's simulator
	PATH="$(abspath $(VENV)-peers)/bin:$$PATH" \
	TORCH_EXTENSIONS_DIR="$(abspath $(VENV)-peers)/extensions" \
	TRITON_CACHE_DIR="$(abspath $(VENV)-peers)/cache" \
	PYTHONPATH=.:benchmarks:published \
	  $(VENV)-peers/bin/python -m peers $(CASES) $(if $(CASES),,--growth all)
	$(BIN)/python docs/plots/make.py growth
	$(BIN)/python docs/generate.py

dist: $(VENV)/.test  ## wheel and source archive into dist/
	$(BIN)/python -m build --no-isolation --outdir dist

pages: $(VENV)/.test  ## what is generated in the pages of docs/
	$(BIN)/python docs/generate.py

docs: $(VENV)/.docs $(VENV)/.test cairo compiler browser  ## the same, its examples, and the site into build/site
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup $(OF_DOCS)
	$(BIN)/python docs/generate.py --site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check.py
	@for name in $(CHROMIUM_NAMES); do \
	  command -v $$name >/dev/null && { node docs/check.mjs; exit; }; \
	done; echo "NOT TESTED: the site in a browser"

# A package of the system, if this user may install one; the rest of the line says what
# it is for.
define apt
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "installing $(2)"; \
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends $(1); } >/dev/null 2>&1 && exit 0; \
  fi
endef

node: explorer/node_modules/.stamp  ## what compiles the explorer's script for its tests

cairo: $(VENV)/.test  ## the library that draws PNG and PDF
	@$(BIN)/python -c "import cairosvg" 2>/dev/null && exit 0; \
	$(call apt,libcairo2,libcairo2: it draws PNG and PDF (about 10 MB)); \
	echo "NOT TESTED: PNG and PDF; no libcairo, and none to install"

compiler:  ## what builds the client of fragmenta run
	@for name in c++ g++ clang++; do command -v $$name >/dev/null && exit 0; done; \
	$(call apt,g++ libc6-dev,g++: it builds the client of fragmenta run (about 200 MB)); \
	echo "NOT TESTED: fragmenta run; no C++ compiler, and none to install"

# Chromium, for the tests that use the explorer and the site in it.
CHROMIUM_NAMES := chromium chromium-browser google-chrome chrome

browser: node  ## what uses the explorer and the site
	@for name in $(CHROMIUM_NAMES); do command -v $$name >/dev/null && exit 0; done; \
	$(call apt,chromium fonts-dejavu-core,Chromium: it uses the explorer and the site (about 400 MB)); \
	echo "NOT TESTED: the explorer in a browser; no Chromium, and none to install"

explorer: $(VENV)/.test node  ## build the pages of the explorer and of the replay anew
	PYTHON=$(CURDIR)/$(BIN)/python node explorer/build.mjs

looks: browser $(VENV)/.test  ## the explorer and the replay in a browser, their pictures against stored ones; UPDATE=1: store them
	$(if $(UPDATE),,$(BIN)/pytest -q -n $(JOBS) --dist loadgroup $(OF_PAGES))
	$(if $(UPDATE),,node explorer/tests/run.mjs)
	$(if $(UPDATE),,node explorer/tests/replay/run.mjs)
	$(if $(UPDATE),,PYTHON=$(CURDIR)/$(BIN)/python node explorer/tests/replay/runs.mjs)
	$(if $(UPDATE),,$(BIN)/python -m tests.view.replay_in_browser)
	$(if $(UPDATE),,PYTHON=$(CURDIR)/$(BIN)/python node explorer/tests/replay/products.mjs)
	PYTHON=$(CURDIR)/$(BIN)/python node explorer/tests/looks.mjs $(if $(UPDATE),--update)

explorer/node_modules/.stamp: explorer/package.json
	@echo "installing what builds and drives the explorer: esbuild, TypeScript (about 60 MB)"
	@if command -v npm >/dev/null && npm install --prefix explorer --no-package-lock \
	    --ignore-scripts --no-audit --no-fund --silent; then touch $@; \
	else echo "NOT TESTED: the explorer; npm could not install explorer/package.json"; fi

clean:          ## remove the environment and everything built
	rm -rf $(VENV) $(VENV)-torch $(VENV)-triton $(VENV)-cutlass $(VENV)-frontends $(VENV)-published $(VENV)-corpus $(VENV)-peers explorer/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# The stamps: made anew when the declared dependencies change.
$(VENV)-torch/.stamp: pyproject.toml
	@echo "installing PyTorch and the tests' tools (some gigabytes)"
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python $(INSTALL) \
	  '$(TORCH)' --editable '.[torch,cuda]' hypothesis 'pytest>=8,<9.2' pytest-xdist
	touch $@

$(VENV)-triton/.stamp: pyproject.toml
	@echo "installing PyTorch, Triton and the tests' tools (some gigabytes)"
	$(PYTHON) -m venv $(VENV)-triton
	$(VENV)-triton/bin/python $(INSTALL) \
	  '$(TORCH)' --editable '.[torch,triton]' 'pytest>=8,<9.2' pytest-xdist psutil tqdm
	$(VENV)-triton/bin/python $(INSTALL) --no-deps $(HELION)
	touch $@

# A later compiler writes other PTX, and hooks use what is private, so all are pinned.
$(VENV)-frontends/.stamp: pyproject.toml
	@echo "installing numba-cuda, Warp, TileLang, cuda.core, cuTile and the tests' tools (about 2 GB)"
	$(PYTHON) -m venv $(VENV)-frontends
	$(VENV)-frontends/bin/python $(INSTALL) --only-binary z3-solver --editable '.[cuda]' \
	  $(NUMBA) $(WARP) '$(TORCH)' $(TILELANG) $(CUDA_CORE) $(CUTILE) \
	  nvidia-cuda-nvcc==13.4.92 nvidia-cuda-profiler-api==13.4.92 'pytest>=8,<9.2' pytest-xdist
	touch $@

# PyCUDA is a source archive, and is linked with CUDA's driver.  The client of fragmenta run
# is one.
PYCUDA_IN := $(VENV)-frontends/pycuda
$(VENV)-frontends/.pycuda: $(VENV)-frontends/.stamp
	@echo "compiling PyCUDA (some minutes)"
	rm -rf $(PYCUDA_IN) && mkdir -p $(PYCUDA_IN)/client
	$(VENV)-frontends/bin/python -m pip --disable-pip-version-check download --quiet \
	  --no-deps --no-binary pycuda --dest $(PYCUDA_IN) $(PYCUDA)
	tar -xzf $(PYCUDA_IN)/pycuda-*.tar.gz --strip-components=1 -C $(PYCUDA_IN)
	$(VENV)-frontends/bin/python -c "import sys, pathlib, fragmenta.frontends.programs.building as b; \
	  b.build(pathlib.Path(sys.argv[1]))" $(PYCUDA_IN)/client
	ln -s libcuda.so.1 $(PYCUDA_IN)/client/libcuda.so
	cd $(PYCUDA_IN) && ../bin/python configure.py --no-cuda-enable-curand \
	  --cuda-inc-dir="$$(echo "$$PWD"/../lib/python3*/site-packages/nvidia/cu13/include)" \
	  --cudadrv-lib-dir="$$PWD/client"
	$(VENV)-frontends/bin/python $(INSTALL) $(PYCUDA_IN)
	touch $@

# Of what the libraries ask for, little is needed, so it is not installed with them.  Of a
# source archive, pip asks setup.py for its name, which needs PyTorch, but no compiler.
$(VENV)-corpus/.stamp: pyproject.toml corpus/packages.txt corpus/archives.txt
	@echo "installing PyTorch, Triton and other people's kernels (about 3 GB)"
	$(PYTHON) -m venv $(VENV)-corpus
	$(VENV)-corpus/bin/python $(INSTALL) '$(TORCH)' '$(TRITON)' --editable '.[torch,triton]'
	$(VENV)-corpus/bin/python $(INSTALL) --no-deps --requirement corpus/packages.txt
	FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE \
	  $(VENV)-corpus/bin/python -m pip --disable-pip-version-check download --quiet \
	  --no-deps --no-build-isolation --no-binary :all: --dest $(VENV)-corpus/archives \
	  --requirement corpus/archives.txt
	mkdir -p $(VENV)-corpus/flash-attn
	tar -xzf $(VENV)-corpus/archives/flash_attn-*.tar.gz --strip-components=1 \
	  -C $(VENV)-corpus/flash-attn --wildcards '*/csrc/flash_attn/*' '*/csrc/cutlass/*'
	touch $@

# A later compiler writes other PTX, so both are pinned.
$(VENV)-cutlass/.stamp: pyproject.toml
	@echo "installing CuTe's Python compiler and pyptx (about 500 MB)"
	$(PYTHON) -m venv $(VENV)-cutlass
	$(VENV)-cutlass/bin/python $(INSTALL) \
	  --editable . $(CUTE) $(PYPTX) 'pytest>=8,<9.2' pytest-xdist
	touch $@

# Of the wheel of CUTLASS only the headers are wanted.
$(VENV)-cutlass/.nvcc: $(VENV)-cutlass/.stamp
	@echo "installing nvcc and CUTLASS's headers (about 300 MB)"
	$(VENV)-cutlass/bin/python $(INSTALL) \
	  'nvidia-cuda-nvcc>=13.4,<14' nvidia-cuda-cccl
	$(VENV)-cutlass/bin/python $(INSTALL) \
	  --no-deps $(CUTLASS)
	touch $@

# PyTorch first: what MMA-Sim asks for is any version of it.
$(VENV)-published/.stamp: pyproject.toml
	@echo "installing PyTorch and MMA-Sim (some gigabytes)"
	$(PYTHON) -m venv $(VENV)-published
	$(VENV)-published/bin/python $(INSTALL) '$(TORCH)'
	$(VENV)-published/bin/python $(INSTALL) \
	  --editable . '$(MMASIM)' 'pytest>=8,<9.2'
	touch $@

$(VENV)-peers/.stamp: pyproject.toml
	@echo "installing PyTorch, Triton, MMA-Sim and numba-cuda (some gigabytes)"
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python $(INSTALL) '$(TORCH)' '$(TRITON)'
	$(VENV)-peers/bin/python $(INSTALL) --editable . '$(MMASIM)' $(NUMBA)
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "installing fragmenta into $(VENV): numpy, llvmlite, ml_dtypes, typer, rich"
	@echo "pip downloads wheels of about 100 MB; its progress follows (minutes on a slow line)"
	$(BIN)/python $(filter-out --quiet,$(INSTALL)) --progress-bar on --editable .
	touch $@

# The assembler of an older toolkit is a second judge; it stands beside the newest one.
$(VENV)/.test: pyproject.toml $(VERSIONS) | $(BIN)/python
	@echo "installing fragmenta and the tests' tools: llvmlite, mypy, Dask, ptxas, NVRTC (about 300 MB)"
	$(KNOWN) --editable '.[test]'
	@echo "installing ptxas 13.0, the second judge (about 40 MB)"
	$(PIP) --no-deps --upgrade --target $(VENV)/toolkit-13.0 'nvidia-cuda-nvcc==13.0.88'
	touch $@ $(VENV)/.base

versions:       ## the newest versions of what the tests and the site use, into tests/versions.txt
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python $(INSTALL) '.[test,docs]'
	sed -i '/^#/!d' $(VERSIONS)
	$(VENV)-newest/bin/python -m pip freeze --exclude fragmenta >> $(VERSIONS)
	rm -r $(VENV)-newest

$(VENV)/.docs: pyproject.toml $(VERSIONS) | $(BIN)/python
	@echo "installing what makes the site: MkDocs, matplotlib (about 50 MB)"
	$(KNOWN) --editable '.[docs]'
	touch $@ $(VENV)/.base
