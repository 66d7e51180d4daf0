//! Pages, plots and stored results of benchmark runs.

pub mod page;
pub mod plot;
pub mod record;
