//! Fuzzes the decoder of connection tracking entries.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::conntrack(bytes));
