//! Fuzzes the parser of BFD control packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::bfd(bytes));
