# `make demo` and `make test` do all their own set-up; see README.md.
# The target folder lies outside the checkout, so that a fresh clone builds warm.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/tidemill-target
# ccache's compiler wrappers, where installed: RocksDB's C++ is the longest part of a cold build.
export PATH := /usr/lib/ccache:$(PATH)

BINARY = $(CARGO_TARGET_DIR)/debug/tidemill

.PHONY: build demo test lint bench bench-binary bench-peers soak dist setup test-setup peers-setup

build: setup
	cargo build

demo: setup
	@test -x $(BINARY) || echo "The first build compiles RocksDB and DataFusion: up to 40 minutes on two cores. Later ones take seconds."
	cargo build --bin tidemill
	$(BINARY) demo

test: setup test-setup
	cargo test

lint: setup
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings

bench: bench-binary
	$(BINARY) bench

# Beside Spark and Flink, which are fetched for it: some hours. A part of it: make bench-peers PEERS="--queries q1,q17 --runs 1"
bench-peers: bench-binary peers-setup
	$${TIDEMILL_TOOLS:-$(HOME)/.cache/tidemill-tools}/peers/python/bin/python bench/peers/run.py --tidemill $(BINARY) $(PEERS)

# The dependencies are optimised already; only our own crate is compiled again.
bench-binary: setup
	CARGO_PROFILE_DEV_OPT_LEVEL=3 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false CARGO_PROFILE_DEV_OVERFLOW_CHECKS=false \
	  cargo build --bin tidemill

# The seeded tests (oracle, simulations, kills) with SOAK times as many seeds, other ones each time.
SOAK ?= 25
FROM ?= $(shell date +%s)
soak: setup test-setup
	@echo "$(SOAK) times the usual seeds, from $(FROM) on; the same again: make soak SOAK=$(SOAK) FROM=$(FROM)"
	TIDEMILL_SOAK=$(SOAK) TIDEMILL_SOAK_FROM=$(FROM) cargo test

dist: setup
	cargo build --profile dist --bin tidemill

setup:
	@.ci/setup build

test-setup:
	@.ci/setup test

peers-setup:
	@.ci/setup peers
