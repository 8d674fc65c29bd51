# make demo   builds, runs a 20-node cluster, loses nodes, reads, recovers, prints a table
# make test   passes every test; says at the end what this machine lacks
# make torture  plays 10,000 histories of the tortured cluster
# make test-hdfs  passes the tests beside a stock HDFS, which it fetches from Maven Central (five minutes)
# make bench  measures kernel, planner, metadata and a whole cluster on this machine
# make page   measures the published figures on emulated hosts and writes docs/repair-experiments.md (75 minutes at most)

DEMO_DIR ?= demo-data
# A real file of 100 MB or more that every Rust toolchain brings along.
DEMO_FILE ?= $(firstword $(wildcard $(shell rustc --print sysroot)/lib/librustc_driver-*.so))
KINTSU = $(or $(CARGO_TARGET_DIR),target)/release/kintsu

.PHONY: demo test test-hdfs torture bench page build setup

demo: build
	@exec $(KINTSU) demo --file "$(DEMO_FILE)" --dir "$(DEMO_DIR)"

test-hdfs: setup
	cargo test --locked -p kintsu --test hdfs --test hdfs_beside -- --test-threads 1

test: setup
	@KINTSU_BIN="$(abspath $(or $(CARGO_TARGET_DIR),target)/debug/kintsu)" scripts/test.sh

torture:
	cargo run --profile torture --locked -p kintsu-torture -- --seeds 0..10000 --jobs $(shell nproc)

bench: build setup
	$(KINTSU) bench kernel
	$(KINTSU) bench plan
	$(KINTSU) bench meta
	$(KINTSU) bench io
	$(KINTSU) bench small

page: build
	$(KINTSU) lab run page --runs 3 --minutes 75 --out results --page docs/repair-experiments.md
	cp results/agreement.json docs/repair-experiments/

build:
	cargo build --release --locked -p kintsu

setup:
	@scripts/setup.sh
