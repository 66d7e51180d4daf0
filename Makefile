# Thin on purpose: what is done is written where it can be read and tested, in lab/.
.PHONY: setup build lab deb release test soak soak-cluster bench openapi book images lab-images

setup:
	@lab/setup.sh test

build: setup
	@cargo build --workspace --locked

# A cluster in network namespaces. With ONCE=1 it ends by itself; its exit status is 0 if the cluster works. Installs and builds
# only what it needs.
lab:
	@lab/setup.sh lab
	@cargo build --locked -p lab -p api -p node-agent -p cli --bins
	@lab/as-root.sh target/debug/tidegate-lab --once=$(ONCE)

# Debian packages in target/debian. PROFILE=dev packs what `make build` has built, for trying out; VERSION=… names another version.
deb: setup
	@cargo build --profile $(or $(PROFILE),release) --locked -p api -p node-agent -p cli -p sync -p dns -p gateway -p cni -p lab --bins
	@packaging/debian/build.sh target/$(if $(filter dev,$(PROFILE)),debug,$(or $(PROFILE),release)) target/debian

# Files of a release for this architecture in target/release-files: static programs, Debian packages, apt repository, bill of materials
# and checksums; APT_KEY and MINISIGN_KEY sign them. See docs/contributing/releases.md.
release: setup
	@packaging/release/build.sh target/release-files

# All checks. The end shows the duration of each stage; the last line counts the checks and tests.
test:
	@lab/test.sh

# Long variants: more random cases and crashes, a long API contract run, ROUNDS of the end-to-end tests.
soak: build
	@lab/soak.sh $(or $(ROUNDS),20)

# Only the cluster that is changed 50 times a second for MINUTES while things go wrong at random; writes docs/benchmarks/soak.md.
# TIDEGATE_SEED=… repeats one, STORE=etcd has three members of etcd as the store (soak-etcd.md), and BINARIES names a directory with programs that are built already.
soak-cluster:
ifndef BINARIES
	@$(MAKE) --no-print-directory build
endif
	@BINARIES=$(BINARIES) lab/soak-cluster.sh $(or $(MINUTES),30) $(or $(STORE),sqlite)

# Benchmarks beside others, in ROUNDS rounds; writes docs/benchmarks. Wants a quiet machine.
bench: setup
	@cargo build --release --workspace --locked
	@lab/as-root.sh target/release/bench failover --rounds $(or $(ROUNDS),50)
	@lab/as-root.sh target/release/bench bgp
	@lab/as-root.sh target/release/bench change
	@lab/as-root.sh target/release/bench cold
	@lab/as-root.sh target/release/bench layout
	@lab/as-root.sh target/release/bench writes
	@lab/as-root.sh target/release/bench connections
	@lab/as-root.sh target/release/bench dns
	@lab/as-root.sh target/release/bench http
	@lab/as-root.sh target/release/bench fanout
	@target/release/bench pages

# The documentation as a book, in target/book.
book: setup
	@lab/book.sh

# Container images of the control server, the agent and the adapters, without any registry. BINARIES names a directory with
# programs that are built already.
images:
ifndef BINARIES
	@cargo build --release --locked -p api -p node-agent -p cli -p sync -p dns -p gateway -p cni
endif
	@packaging/container/images.sh $(BINARIES)

# What compose.yaml needs besides: FRR, curl and a shell, as they are installed here.
lab-images:
	@packaging/container/lab-images.sh
