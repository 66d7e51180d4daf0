//! Fuzzes the decoder of UPDATE messages in all contexts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::update(bytes));
