# Thin on purpose: what is done is written where it can be read and tested, in lab/.
.PHONY: setup build lab test soak bench openapi

setup:
	@lab/setup.sh

build: setup
	@cargo build --workspace --locked

# A cluster in network namespaces. ONCE=1 ends by itself and exits by what it saw.
lab: build
	@lab/as-root.sh target/debug/tidegate-lab --once=$(ONCE)

# Everything; ends with one line that counts all tests.
test:
	@lab/test.sh

# Long variants: more random cases and crashes, a long API contract run, ROUNDS of the end-to-end tests.
soak: build
	@lab/soak.sh $(or $(ROUNDS),20)

# Benchmarks beside others, in ROUNDS rounds; writes docs/benchmarks. Wants a quiet machine.
bench: setup
	@cargo build --release --workspace --locked
	@lab/as-root.sh target/release/bench failover --rounds $(or $(ROUNDS),50)
	@lab/as-root.sh target/release/bench bgp
	@lab/as-root.sh target/release/bench change
	@lab/as-root.sh target/release/bench cold
	@lab/as-root.sh target/release/bench connections
