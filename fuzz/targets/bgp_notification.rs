//! Fuzzes the decoder of NOTIFICATION messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::notification(bytes));
