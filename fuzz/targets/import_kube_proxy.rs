//! Fuzzes the import of kube-proxy configurations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::import_kube_proxy(bytes));
