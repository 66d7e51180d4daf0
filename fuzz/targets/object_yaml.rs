//! Fuzzes the decoder of objects in YAML request bodies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::object_yaml(bytes));
