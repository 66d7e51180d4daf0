//! Fuzzes the reading of what servers answer to gRPC health checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::grpc_health(bytes));
