# One command does each thing; `make help` lists them. Nothing here needs more than Python >= 3.11 (and, for the
# cluster level, Go and root).
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The distribution's Python is compiled with a profile of its use, and takes a quarter less of the processor than one that
# was compiled here without (pyenv's default): it comes first if it is complete and new enough.
ifndef PYTHON
PYTHON := $(shell /usr/bin/python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
endif
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SITE := build/site-tools
PYTEST := $(BIN)/python -m pytest
# Tests start many processes of netdra. If this is set, as in many images, each process compiles all of its imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick lint format test-unit test-kernel test-cluster test-pods test-oldest test-runtimes test-hardware test-machine test-site test-release test-times test-recorded test-upgrade promises mutants explore soak testbed bench image release crds docs site protos lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(RUNTIME) ## Build a node, schedule a pod's network on it, attach it, show it, take it down
	@$(BIN)/netdra lab demo

# Levels of tests are run by testbed/suite: side by side, each with its preparations. ARGS are pytest's arguments for one
# level: make test-cluster ARGS='tests/cluster/test_webhook.py -k vlan'
SUITE := @$(PYTHON) -m testbed.suite

test: ## Everything that CI runs, side by side (root, Go)
	$(SUITE)

lint: $(DEV) ## Format check, lint, strict types, import contracts, English (Go, a C compiler)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(PYTHON) -m testbed build vale >/dev/null
	$(BIN)/python -m testbed.prose

format: $(DEV) ## Format the code, and fix simple findings of ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

quick: ## Lint, types, and the unit tests that your changes can break; SINCE=COMMIT
	$(SUITE) --changed --since='$(SINCE)'

test-unit: ## Pure functions: tables, properties, golden files
	$(SUITE) unit --arguments='$(ARGS)'

test-kernel: ## Real network namespaces, netlink and CNI plugins (root)
	$(SUITE) kernel --arguments='$(ARGS)'

test-cluster: ## Real control plane; ARGS may name any file in tests/cluster (root, Go)
	$(SUITE) cluster --arguments='$(ARGS)'

test-pods: ## Real pods on a kubelet and containerd; netdra's own from its image and charts (root, Go)
	$(SUITE) pods --arguments='$(ARGS)'

test-oldest: ## Pods, NRI, CDI, a crash and restarts on the oldest container runtime (root, Go)
	$(SUITE) oldest --arguments='$(ARGS)'

test-runtimes: system-runtimes $(DEV) ## The same, and all faults, on every container runtime and Kubernetes; ONLY (root, Go, an hour)
	@$(PYTHON) -m testbed build >/dev/null && $(PYTHON) -m testbed build --for runtimes >/dev/null
	@$(BIN)/python -m testbed.matrix $(ONLY)

test-hardware: ## An SR-IOV node in QEMU: VFs, IOMMU, RDMA, Open vSwitch, pods with its hardware, a reboot (root, apt)
	$(SUITE) hardware --arguments='$(ARGS)'

test-machine: ## The SR-IOV machine from outside: its errors, and that nothing of it remains (root, apt)
	$(SUITE) machine --arguments='$(ARGS)'

test-times: ## Compare the times of the last run with those of the run before; BEFORE, AFTER
	$(SUITE) --times $(or $(BEFORE),build/tests.before.json) $(or $(AFTER),build/tests.json)

test-recorded: recordings $(DEV) ## Descriptions of servers against recorded trees, NETDRA_FIXTURES=folder; not in `make test`
	$(PYTEST) tests/recorded

DRAWN := $(addprefix test_,scheduler_agreement.py library_agreement.py pod_networks.py slices_accepted.py kubectl_yaml.py hollow.py validate_agreement.py) \
  $(addprefix sandboxes/test_,any_order.py refusing_kernel.py) $(addprefix pods/networks/test_,workloads.py edited.py)
REPEATED := $(addprefix test_,benchmarks.py console_looks.py emptied_objects.py) sandboxes/test_bad_disk.py
LIBRARIES := $(addprefix dra-library-,1.38 1.37 1.36) kube-scheduler-1.38
explore: $(DEV) system testbed ## Random tests with new seeds, for longer: properties, parsers of foreign bytes (NETDRA_FUZZ_SECONDS each), pods; tests with the mark `repeats`; then `make promises` (root, Go, apt)
	@$(PYTHON) -m testbed build $(LIBRARIES) >/dev/null
	NETDRA_DRAW=anew $(PYTEST) tests/unit tests/kernel $(addprefix tests/cluster/,$(DRAWN))
	NETDRA_DRAW=anew $(MAKE) --no-print-directory test-hardware ARGS='tests/hardware/real/test_pod_faults.py tests/hardware/real/test_pooled.py tests/hardware/real/test_pods.py -m repeats'
	$(PYTHON) -m testbed.vm run env NETDRA_DRAW=anew $(PYTEST) tests/hardware/test_answers.py
	NETDRA_DRAW=anew $(PYTEST) $(addprefix tests/cluster/,$(REPEATED))
	$(BIN)/python -m testbed.promises

promises: $(DEV) ## Break each promise of the documentation on purpose, and see that its test fails; ONLY='words of a promise' (root, Go, Debian 12 or newer)
	@$(BIN)/python -m testbed.promises $(ONLY)

mutants: $(DEV) ## Make small random mistakes in the code, and see how many the unit tests notice; COUNT, SEED, MODULE=PATH[:LINE]
	@$(BIN)/python -m testbed.mutants $(if $(COUNT),--count=$(COUNT)) $(if $(SEED),--seed=$(SEED)) --module='$(MODULE)'

test-upgrade: $(DEV) system testbed ## Pods live through an upgrade from the last release, or FROM=<tag or commit>, back, and forward again (root, Go)
	@$(PYTHON) -m image --prepare
	@$(PYTHON) -m testbed.former $(FROM)
	@$(PYTEST) tests/upgrade

soak: $(DEV) system testbed ## 200 random pods and faults on a real node, 10,000 pods through a driver, 10,000 claims for addresses, 20 updates of the driver; NETDRA_SOAK_RUNS, NETDRA_MANY_PODS, NETDRA_SOAK_SEED (root, Go)
	NETDRA_SOAK_RUNS=$${NETDRA_SOAK_RUNS:-200} NETDRA_SOAK_AWAY=$${NETDRA_SOAK_AWAY:-60} \
	  NETDRA_SOAK_SEED=$${NETDRA_SOAK_SEED:-$$RANDOM} \
	  $(PYTEST) tests/cluster/pods/test_soak.py
	NETDRA_MANY_PODS=$${NETDRA_MANY_PODS:-10000} $(PYTEST) tests/cluster/sandboxes/test_many_pods.py
	NETDRA_ADDRESS_CLAIMS=$${NETDRA_ADDRESS_CLAIMS:-10000} $(PYTEST) tests/cluster/test_pod_networks.py -k killed_and_rival
	@$(PYTHON) -m image --prepare
	NETDRA_UPDATES=$${NETDRA_UPDATES:-20} $(PYTEST) tests/cluster/install/test_rolling_update.py

testbed: ## Build the real components of the tests, once per machine and version
	@$(PYTHON) -m testbed build >/dev/null

image: ## Build the container image on a base of this machine's packages, and print its size (root, apt)
	@$(PYTHON) -m testbed system
	@$(PYTHON) -m image

release: $(DEV) site ## Build a release into build/release: packages, images, charts, manifests, SBOM, site, checksums, provenance; KEY=FILE signs it, or LOCAL=1 for yourself (root, apt)
	@$(PYTHON) -m testbed system
	@$(BIN)/python -m release build --site=build/site $(if $(KEY),--key='$(KEY)') $(if $(LOCAL),--local)

crds: $(RUNTIME) ## Write the chart's CustomResourceDefinitions from the types
	@$(BIN)/python -m netdra crds --output-dir charts/netdra/files/crds

docs: $(DEV) ## Write the pages that are generated from the code (docs/metrics.md, docs/messages.md, docs/fields.md), the list of codes of errors, and the values and READMEs of the charts
	@$(BIN)/python -m netdra.cli.metrics_page >docs/metrics.md
	@$(BIN)/python -m testbed.messages_page >docs/messages.md
	@$(BIN)/python -m testbed.codes >netdra/cli/codes.json.new && mv netdra/cli/codes.json.new netdra/cli/codes.json
	@$(BIN)/python -m testbed.fields_page >docs/fields.md
	@$(BIN)/python -m testbed.chart_page $(dir $(wildcard charts/*/values.schema.json))

site: $(SITE)/.ready $(RUNTIME) ## Build the documentation as a site with search, without external requests: build/site/index.html
	@rm -rf build/site build/site-doctrees  # what is left of a former build would be in the search, and in a release
	@$(BIN)/python -m testbed.site_sources build/site-sources
	@$(SITE)/bin/sphinx-build --fail-on-warning --keep-going --quiet --builder html --conf-dir docs --doctree-dir build/site-doctrees build/site-sources build/site

test-site: $(DEV) site ## Read the site in Chromium, at 1,400 and 420 pixels: nothing cut, searches, no external request; pictures in build/site-pictures (root, apt)
	@$(PYTHON) -m testbed system --for browser
	@$(BIN)/python -m testbed.site_check build/site build/site-pictures

test-release: $(DEV) system testbed ## The tasks of a release's readers, with nothing but its folder: verify, install, first pod, upgrade, remove, Argo CD and Flux, read the site; RELEASE=FOLDER (build/release), BEFORE=FOLDER of an earlier one (root, Go, apt)
	@$(PYTHON) -m testbed system --for browser
	@$(PYTHON) -m testbed build --for release >/dev/null
	NETDRA_RELEASE='$(RELEASE)' NETDRA_RELEASE_BEFORE='$(BEFORE)' $(PYTEST) tests/release

$(SITE)/.ready: docs/requirements.lock
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(PYTHON) -m testbed system
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --require-hashes -r docs/requirements.lock
	@touch $@

protos: $(DEV) ## Write the node's messages from protos/
	@$(BIN)/python -m testbed.protos

bench: $(DEV) system testbed testbed-bench ## Figures, side by side with the limit or the peer, as ratios
	$(BIN)/python -m bench

.PHONY: testbed-cni testbed-bench system
testbed-cni:
	@$(PYTHON) -m testbed build cni-plugins cnitool >/dev/null

testbed-bench:
	@$(PYTHON) -m testbed build --for bench >/dev/null

.PHONY: recordings
recordings:
	@test -n "$$NETDRA_FIXTURES" || { \
	  echo 'netdra: set NETDRA_FIXTURES to the folder of the recorded trees (docs/testing.md)' >&2; exit 1; }

# Debian packages of the tests: for reading the kernel, and for bare images. Installed ones cost nothing.
.PHONY: system-runtimes
system system-runtimes:
	@$(PYTHON) -m testbed system --for $(if $(filter system,$@),tests,runtimes)

lock: $(DEV) ## Pin the dependencies again, with hashes and without any registry's address
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --extra build --upgrade pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --extra build --extra cluster --upgrade pyproject.toml -o requirements-cluster.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --extra build --extra cluster --extra dev --upgrade pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --upgrade testbed/openstack/requirements.in -o testbed/openstack/requirements.lock
	echo setuptools | $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal \
	  --python-version 3.11 --upgrade - -o testbed/openstack/build.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --upgrade docs/requirements.in -o docs/requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --no-annotate --no-deps --python-version 3.11 \
	  --upgrade testbed/axe.in -o testbed/axe.lock

clean: ## Remove what these commands made in the checkout (built test components stay in the cache)
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Debian ships ensurepip in a package of its own; root can install it, otherwise the error names the missing package.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("netdra needs Python >= 3.11, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(PYTHON) -m testbed system
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "netdra: installing its dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# axe.min.js alone is used of its package, not what the package itself requires.
$(DEV): requirements-dev.lock testbed/axe.lock $(RUNTIME)
	@echo "netdra: installing the development tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r testbed/axe.lock
	@touch $@
