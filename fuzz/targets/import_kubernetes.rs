//! Fuzzes the import of Kubernetes configurations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::import_kubernetes(bytes));
