//! Order statistics of a few measured figures.

use serde::{Deserialize, Serialize};

/// What a column of a table says of a set of figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Half of the figures are at most this.
    pub median: f64,
    /// 99 of 100 are at most this: with fewer than 100 figures, the largest.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises figures in any order; none of no figures.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let max = *sorted.last()?;
        Some(Self { median: percentile(&sorted, 50)?, p99: percentile(&sorted, 99)?, max })
    }
}

/// The smallest figure that `percent` of all do not exceed (nearest rank).
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
