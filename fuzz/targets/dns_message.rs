//! Fuzzes the parser of DNS messages, the answers of the cluster zone and the form of forwarded responses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::dns_message(bytes));
