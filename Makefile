# make demo   builds, runs a 20-node cluster, loses nodes, reads, recovers, prints a table
# make test   passes every test; says at the end what this machine lacks
# make torture  plays 15,000 histories of the tortured cluster, 5,000 of them with volumes, of which 3,000 have
#               schemes, snapshots and racks that fail as a whole, and 1,000 logs that rot
# make test-hdfs  passes all tests beside a stock HDFS, of both releases (or of HDFS_VERSION), fetched from Maven Central; with
#                 ROUNDS=3 three times in a row, with SOAK=30 then 30 minutes of kills and returns (scripts/hdfs-test.sh)
# make hdfs-demo  kills DataNodes of a stock HDFS on emulated hosts, and prints how long stock and each method take to mend, and
#                 how long a degraded read takes; RS-6-3 and RS-10-4 (or POLICY), or an
#                 object of kintsu hdfs store under a CODE (rs:n=9,k=6); with RACKS=3 in three racks; with PAGE=docs/hdfs.md it
#                 goes into that page too, which has places for those policies and that code
# make bench  builds the kernels that ours is compared with (scripts/rivals.sh) and measures kernel, planner, metadata, paths and a whole
#             cluster on this machine; with PAGE=1 the tables of README.md and docs/measured.md are made of that
# make page   measures the published figures on emulated hosts and writes docs/repair-experiments.md; ends after three hours with what it
#             has (two processors need four; each section says how long it took), and goes on when it is called again
# make updates TRACES=DIR  repeats the experiments of CAU with the traces of writes in a folder, an hour at most (scripts/updates.sh); with
#             PAGE=docs/updates.md the tables go into that page; PARTS="cau-8 cau-10" are some of them

DEMO_DIR ?= demo-data
# A real file of 100 MB or more that every Rust toolchain brings along.
DEMO_FILE ?= $(firstword $(wildcard $(shell rustc --print sysroot)/lib/librustc_driver-*.so))
KINTSU = $(or $(CARGO_TARGET_DIR),target)/release/kintsu

.PHONY: demo hdfs-demo test test-hdfs torture bench page updates build setup

demo: build
	@scripts/setup.sh demo
	@exec $(KINTSU) demo --file "$(DEMO_FILE)" --dir "$(DEMO_DIR)"

hdfs-demo: build setup
	@for policy in $(or $(POLICY),$(if $(CODE),'',RS-6-3-1024k RS-10-4-1024k)); do POLICY=$$policy scripts/hdfs-demo.sh $(KINTSU) || exit 1; done

test-hdfs: setup
	@scripts/hdfs-test.sh

test: setup
	@KINTSU_BIN="$(abspath $(or $(CARGO_TARGET_DIR),target)/debug/kintsu)" scripts/test.sh

torture:
	cargo run --profile torture --locked -p kintsu-torture -- --seeds 0..10000 --jobs $(shell nproc)
	cargo run --profile torture --locked -p kintsu-torture -- --seeds 1000000..1002000 --jobs $(shell nproc)
	cargo run --profile torture --locked -p kintsu-torture -- --seeds 1006000..1008000 --jobs $(shell nproc)
	cargo run --profile torture --locked -p kintsu-torture -- --seeds 1008000..1009000 --jobs $(shell nproc)

bench: build setup
	scripts/rivals.sh
	$(KINTSU) bench all $(if $(PAGE),--page README.md --page docs/measured.md)

page: build
	$(KINTSU) lab run page chameleon --runs 3 --minutes 180 --out results --resume --page docs/repair-experiments.md
	cp results/agreement.json docs/repair-experiments/

updates: build setup
	@PAGE="$(PAGE)" scripts/updates.sh $(KINTSU) "$(TRACES)" $(PARTS)

build:
	cargo build --release --locked -p kintsu

setup:
	@scripts/setup.sh
