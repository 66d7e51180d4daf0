//! Terminal output: colors and tables.

pub mod style;
pub mod table;
