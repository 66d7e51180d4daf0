//! Pages, plots and records of benchmark runs.

pub mod page;
pub mod plot;
pub mod record;
