//! Fuzzes the decoder of BGP capabilities.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::capabilities(bytes));
