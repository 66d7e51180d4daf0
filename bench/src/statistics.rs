//! Statistics of measured values: summaries, ratios and straight-line fits.

pub mod figures;
pub mod fit;
