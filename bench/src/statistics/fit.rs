//! Linear regression of a cost over a size, with the confidence interval of the slope.

use serde::Serialize;

/// Straight line `cost = intercept + slope × size`, fitted by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Estimated cost at size 0.
    pub intercept: f64,
    /// Additional cost per unit of size.
    pub slope: f64,
    /// Half width of the 95 % confidence interval of the slope (Student's t, residuals as the error).
    pub slope_margin: f64,
}

impl Line {
    /// Fits a line to at least three points of at least two sizes; `None` otherwise.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len();
        if count < 3 {
            return None;
        }
        let number = count as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / number;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let slope = together / spread;
        let intercept = mean_y - slope * mean_x;
        let residuals: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
        let error = (residuals / (number - 2.0) / spread).sqrt();
        Some(Self { intercept, slope, slope_margin: student_95(count - 2) * error })
    }

    /// Returns `grows` or `falls` if zero is outside the confidence interval of the slope, else `not shown`. The last
    /// one is no proof that the cost is constant; see [`Self::growth_at_most`].
    #[must_use]
    pub fn trend(&self) -> &'static str {
        if self.slope - self.slope_margin > 0.0 {
            "grows"
        } else if self.slope + self.slope_margin < 0.0 {
            "falls"
        } else {
            "not shown"
        }
    }

    /// Returns the upper end of the 95 % confidence interval of the growth of the cost from size 0 to `size`, as a
    /// fraction of the cost at size 0. Infinite if the estimated cost at size 0 is not positive.
    #[must_use]
    pub fn growth_at_most(&self, size: f64) -> f64 {
        if self.intercept > 0.0 {
            (self.slope + self.slope_margin) * size / self.intercept
        } else {
            f64::INFINITY
        }
    }

    /// Returns the ratio of the cost at size `large` to the cost at size `small`.
    #[must_use]
    pub fn ratio(&self, large: f64, small: f64) -> f64 {
        (self.intercept + self.slope * large) / (self.intercept + self.slope * small)
    }
}

/// Returns the two-sided 95 % point of Student's t distribution for `freedom` degrees of freedom. Between two
/// entries of the table, returns the larger value.
fn student_95(freedom: usize) -> f64 {
    const POINTS: [(usize, f64); 16] = [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (6, 2.447),
        (7, 2.365),
        (8, 2.306),
        (10, 2.228),
        (15, 2.131),
        (20, 2.086),
        (30, 2.042),
        (40, 2.021),
        (60, 2.0),
        (120, 1.98),
        (1_000, 1.962),
    ];
    let known = POINTS.iter().rev().find(|(point, _)| *point <= freedom);
    known.map_or(POINTS[0].1, |(_, t)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_its_slope_is_sure() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        let line = Line::through(&points).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-9 && (line.intercept - 3.0).abs() < 1e-9, "{line:?}");
        assert_eq!(line.trend(), "grows");
        assert!((line.ratio(9.0, 0.0) - 7.0).abs() < 1e-9);
        let falling: Vec<_> = points.iter().map(|(x, y)| (*x, -y)).collect();
        assert_eq!(Line::through(&falling).unwrap().trend(), "falls");
    }

    #[test]
    fn noise_around_a_constant_does_not_grow() {
        let noise = [0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.1];
        let points: Vec<_> = noise.iter().enumerate().map(|(x, noise)| (x as f64, 5.0 + noise)).collect();
        assert_eq!(Line::through(&points).unwrap().trend(), "not shown");
    }

    /// More noise around the same line raises the upper end of the growth.
    #[test]
    fn noise_never_helps_to_show_that_a_cost_is_constant() {
        let line = |noise: f64| {
            let points: Vec<_> =
                (0..10).map(|x| (f64::from(x), 5.0 + if x % 2 == 0 { noise } else { -noise })).collect();
            Line::through(&points).unwrap()
        };
        assert!(line(0.0).growth_at_most(9.0).abs() < 1e-9);
        assert!(line(0.1).growth_at_most(9.0) < line(1.0).growth_at_most(9.0));
        assert!(line(1.0).growth_at_most(9.0) > 0.05 && line(1.0).trend() == "not shown");
        let free = Line { intercept: 0.0, slope: 1.0, slope_margin: 0.0 };
        assert!(free.growth_at_most(1.0).is_infinite());
    }

    #[test]
    fn the_margin_is_the_one_of_the_textbook() {
        // Residuals 0.5, -1, 0.5: s² = 1.5, spread 2, t(1) = 12.706.
        let line = Line::through(&[(0.0, 0.5), (1.0, 0.0), (2.0, 2.5)]).unwrap();
        assert!((line.slope - 1.0).abs() < 1e-9);
        assert!((line.slope_margin - 12.706 * (1.5f64 / 2.0).sqrt()).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn too_little_is_no_line() {
        assert_eq!(Line::through(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
