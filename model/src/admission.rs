//! Admission of writes: decoding, validation, defaulting, uniqueness, and rollback.

pub mod admit;
pub mod decode;
pub mod rollback;
pub(crate) mod validate;
