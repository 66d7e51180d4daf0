//! Fuzzes the parser of gRPC health check responses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::grpc_health(bytes));
