//! Fuzzes the decoder of OPEN messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::open(bytes));
