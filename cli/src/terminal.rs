//! Terminal output: colors and tables.

pub mod style;
pub mod table;

/// Removes line breaks and characters that control the display, which could manipulate a terminal.
pub(crate) use translate::json::clean;
