#!/usr/bin/env bash
# The compiler that `make test` has cargo use for the crates of the workspace (RUSTC_WORKSPACE_WRAPPER): it compiles and applies
# the lints of clippy in one pass, and any warning is an error. `cargo clippy` would compile all dependencies a second time.
exec clippy-driver "$@" -D warnings
