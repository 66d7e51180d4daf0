//! Fuzzes the import of ipvsadm configurations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::import_ipvsadm(bytes));
