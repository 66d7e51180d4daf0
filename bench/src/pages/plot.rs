//! SVG dot plot on a logarithmic scale: one row per series, one dot per value, a line at the median.

use std::{collections::BTreeMap, fmt::Write};

/// Row of a plot: the values of one series.
#[derive(Debug, Clone)]
pub struct PlotRow {
    /// Label left of the row.
    pub label: String,
    /// Color of the dots, in SVG notation.
    pub colour: &'static str,
    /// Positive values in any order. Other values do not fit a logarithmic scale and are drawn at its minimum.
    pub figures: Vec<f64>,
    /// Value at which the median line is drawn; `None` without values.
    pub median: Option<f64>,
}

const WIDTH: f64 = 860.0;
const LABELS_WIDTH: f64 = 270.0;
const MARGIN: f64 = 24.0;
const TOP: f64 = 56.0;
const ROW_HEIGHT: f64 = 26.0;
const SCALE_HEIGHT: f64 = 44.0;
const DOT_RADIUS: f64 = 2.6;
/// Vertical offsets in pixels of consecutive dots, so that equal values stay distinguishable.
const SPREAD: [f64; 5] = [0.0, -5.0, 5.0, -2.5, 2.5];
/// Maximum number of dots drawn at the same position; further dots would be hidden.
const STACK_MAX: usize = 4;

/// Draws rows under a title; `unit` labels the scale, which has a line per power of ten.
#[must_use]
pub fn dots(title: &str, unit: &str, rows: &[PlotRow]) -> String {
    let scale = Scale::of(rows);
    let bottom = TOP + ROW_HEIGHT * rows.len() as f64;
    let height = bottom + SCALE_HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    for power in scale.first..=scale.last {
        let (x, figure) = (scale.x(10f64.powi(power)), 10f64.powi(power));
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#cccccc\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{figure} {}</text>",
            TOP - 8.0,
            bottom + 18.0,
            escape(unit)
        );
    }
    for (index, row) in rows.iter().enumerate() {
        draw_row(&mut svg, &scale, row, TOP + ROW_HEIGHT * (index as f64 + 0.5));
    }
    svg + "</svg>\n"
}

fn draw_row(svg: &mut String, scale: &Scale, row: &PlotRow, y: f64) {
    let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{:.1}\">{}</text>", y + 4.0, escape(&row.label));
    let _ = writeln!(svg, "<g fill=\"{}\" fill-opacity=\"0.45\">", row.colour);
    let mut stacks: BTreeMap<String, usize> = BTreeMap::new();
    for (figure, offset) in row.figures.iter().zip(SPREAD.iter().cycle()) {
        let place = format!("cx=\"{:.0}\" cy=\"{:.1}\"", scale.x(*figure), y + offset);
        let stack = stacks.entry(place).or_default();
        *stack = STACK_MAX.min(*stack + 1);
    }
    for (place, count) in stacks {
        for _ in 0..count {
            let _ = writeln!(svg, "<circle {place} r=\"{DOT_RADIUS}\"/>");
        }
    }
    svg.push_str("</g>\n");
    if let Some(median) = row.median {
        let x = scale.x(median);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"black\" stroke-width=\"2\"/>",
            y - 9.0,
            y + 9.0
        );
    }
}

/// Logarithmic axis between the powers of ten that enclose all values.
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    fn of(rows: &[PlotRow]) -> Self {
        let positive =
            || rows.iter().flat_map(|row| row.figures.iter().copied()).filter(|&figure| figure > 0.0);
        let least = positive().min_by(f64::total_cmp).unwrap_or(1.0);
        let largest = positive().max_by(f64::total_cmp).unwrap_or(10.0);
        // A finite positive f64 has a logarithm between -324 and 309.
        let first = least.log10().floor() as i32;
        Self { first, last: (largest.log10().ceil() as i32).max(first + 1) }
    }

    fn x(&self, figure: f64) -> f64 {
        let (first, last) = (f64::from(self.first), f64::from(self.last));
        let share = ((figure.max(f64::MIN_POSITIVE).log10() - first) / (last - first)).max(0.0);
        LABELS_WIDTH + share * (WIDTH - LABELS_WIDTH - 2.0 * MARGIN)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_where_the_scale_says() {
        let row = PlotRow {
            label: "a < b".into(),
            colour: "navy",
            figures: vec![20.0, 200.0, 0.0],
            median: Some(20.0),
        };
        let svg = dots("t", "ms", &[row]);
        for expected in ["a &lt; b", ">10 ms<", ">100 ms<", ">1000 ms<", "</svg>"] {
            assert!(svg.contains(expected), "{expected} in\n{svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 3);
        let scale = Scale { first: 1, last: 3 };
        assert!((scale.x(100.0) - (scale.x(10.0) + scale.x(1000.0)) / 2.0).abs() < 1e-9);
        assert!((scale.x(0.0) - scale.x(10.0)).abs() < 1e-9);
    }

    #[test]
    fn more_dots_in_one_place_than_can_be_seen_are_not_drawn() {
        let row = PlotRow { label: "x".into(), colour: "navy", figures: vec![20.0; 1_000], median: None };
        assert_eq!(dots("t", "ms", &[row]).matches("<circle").count(), SPREAD.len() * STACK_MAX);
    }

    #[test]
    fn a_plot_of_nothing_is_a_plot() {
        assert!(dots("t", "ms", &[]).ends_with("</svg>\n"));
    }
}
