//! Fuzzes the decoder of netlink messages and attributes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::netlink(bytes));
