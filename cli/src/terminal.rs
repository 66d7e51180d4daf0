//! Terminal output: colors and tables.

pub mod style;
pub mod table;

/// Removes line breaks and control characters, which could manipulate a terminal.
pub(crate) use translate::json::clean;
