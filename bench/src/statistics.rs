//! Statistics of measured figures.

pub mod figures;
pub mod fit;
