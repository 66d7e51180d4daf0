//! Order statistics of a set of measurements.

use serde::{Deserialize, Serialize};

/// Summary of a set of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median of the values.
    pub median: f64,
    /// 99th percentile; with fewer than 100 values, the maximum.
    pub p99: f64,
    /// Maximum of the values.
    pub max: f64,
}

impl Summary {
    /// Summarizes values in any order; `None` without values.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let max = *sorted.last()?;
        Some(Self { median: percentile(&sorted, 50)?, p99: percentile(&sorted, 99)?, max })
    }
}

/// Returns the percentile by the nearest-rank method; `None` without values.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let all = Summary::of((1..=200).rev().map(f64::from)).unwrap();
        assert_eq!(all, Summary { median: 100.0, p99: 198.0, max: 200.0 });
        let one = Summary::of([7.0]).unwrap();
        assert_eq!(one, Summary { median: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Summary::of([3.0, 1.0, 2.0]).unwrap(), Summary { median: 2.0, p99: 3.0, max: 3.0 });
        assert_eq!(Summary::of([]), None);
    }
}
