//! Fuzzes the import of keepalived configurations.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::import_keepalived(bytes));
