# Thin on purpose: what is done is written where it can be read and tested, in lab/.
.PHONY: setup build lab test soak openapi

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

# The end-to-end tests again and again, until one fails or ROUNDS are over.
soak: build
	@lab/soak.sh $(or $(ROUNDS),20)
