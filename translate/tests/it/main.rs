//! Integration tests of imports and exports.

mod export;
mod import;
