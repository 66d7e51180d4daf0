//! Fuzzes the decoders of nf_tables set elements and rules.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::nftables(bytes));
