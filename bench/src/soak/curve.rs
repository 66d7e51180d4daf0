//! SVG line chart of memory over time: one line per process, broken at restarts.

use std::{collections::BTreeMap, fmt::Write};

use lab::chaos::soak::Sample;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
const COLOURS: [&str; 6] = ["#0b6e99", "#b3541e", "#3a7d44", "#7b4fa3", "#a37b00", "#555555"];
/// Number of grid lines in each direction.
const MARKS: u32 = 6;

/// Renders the chart of the memory that each process has allocated from the kernel. Dots mark samples taken
/// at rest: without load or faults, and with the same objects in the store each time.
pub(super) fn plot(samples: &[Sample]) -> String {
    let minutes = |sample: &Sample| sample.at.as_secs_f64() / 60.0;
    let last = samples.iter().map(minutes).fold(1.0, f64::max);
    let most = samples.iter().map(mebibytes).fold(1.0, f64::max) * 1.05;
    let x = |minutes: f64| LEFT + minutes / last * (WIDTH - LEFT - RIGHT);
    let y = |mebibytes: f64| HEIGHT - BOTTOM - mebibytes / most * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">Memory allocated from the kernel \
         in MiB, by minute</text>\n"
    );
    for mark in 0..=MARKS {
        let share = f64::from(mark) / f64::from(MARKS);
        let (minute, height) = (last * share, most * share);
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{height:.0}</text>\n\
             <text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"middle\">{minute:.0}</text>",
            y(height),
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(height) + 4.0,
            x(minute),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let mut by_process: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_process.entry(&sample.process).or_default().push(sample);
    }
    for ((index, (process, samples)), colour) in by_process.iter().enumerate().zip(COLOURS.iter().cycle()) {
        for life in samples.chunk_by(|one, other| one.pid == other.pid) {
            let points: Vec<_> = life
                .iter()
                .map(|sample| format!("{:.1},{:.1}", x(minutes(sample)), y(mebibytes(sample))))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
                points.join(" ")
            );
        }
        for sample in samples.iter().filter(|sample| sample.is_settled) {
            let (x, y) = (x(minutes(sample)), y(mebibytes(sample)));
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        let (x, y) = (WIDTH - RIGHT + 10.0, TOP + 18.0 * index as f64);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{process}</text>");
    }
    svg + "</svg>\n"
}

fn mebibytes(sample: &Sample) -> f64 {
    sample.anonymous_kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_process_has_a_line_for_each_of_its_lives() {
        let sample = |minute: u64, pid, is_settled| Sample {
            at: Duration::from_secs(60 * minute),
            process: "control".to_owned(),
            pid,
            is_settled,
            resident_kib: 2048,
            anonymous_kib: 1024,
            in_use_kib: None,
            files: 1,
            threads: 1,
        };
        let svg = plot(&[sample(1, 7, true), sample(2, 7, false), sample(3, 8, true)]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 2));
        assert!(svg.contains(">control</text>") && plot(&[]).ends_with("</svg>\n"));
    }
}
