//! What the pages of all benchmarks have alike: their head, and where they were measured.

use std::fmt::Write;

use crate::{
    host::{Host, Load},
    statistics::figures::Summary,
};

/// The head of a page: title, how it is made, and the plot.
#[must_use]
pub fn head(title: &str, name: &str, alternative: &str) -> String {
    format!(
        "# {title}\n\nWritten by `make bench` (`cargo run --release -p bench -- {name}`); every figure is in \
         [{name}.json]({name}.json).\n\n![{alternative}]({name}.svg)\n"
    )
}

/// Where and when it was measured.
#[must_use]
pub fn place(host: &Host, versions: &[String], load: Option<&Load>) -> String {
    let mut text = format!(
        "## Where\n\n- kernel {}, {} × {}, {} MiB\n- {}\n",
        host.kernel,
        host.processors,
        host.processor,
        host.memory_mib,
        versions.join("; ")
    );
    if let Some(load) = load {
        let percent = |share: Option<f64>| {
            share.map_or("unknown".to_owned(), |share| format!("{:.0} %", share * 100.0))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "- load average {:.2} before and {:.2} after, processors busy {:.0} %, in pauses by others {}, somebody waited for one \
             {} of the time",
            load.average_before,
            load.average_after,
            load.busy * 100.0,
            percent(load.others),
            percent(load.pressure)
        );
    }
    text
}

/// Median and 99th percentile, as two cells of a table.
#[must_use]
pub fn cells(figures: &[f64], unit: &str) -> String {
    match Summary::of(figures.iter().copied()) {
        Some(summary) => format!("{} {unit} | {} {unit}", short(summary.median), short(summary.p99)),
        None => "– | –".to_owned(),
    }
}

/// A figure with three digits that mean something.
#[must_use]
pub fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        assert_eq!([0.1234, 5.0, 12.34, 1234.5].map(short), ["0.12", "5.00", "12.3", "1234"]);
        assert_eq!(cells(&[3.0, 1.0, 2.0], "ms"), "2.00 ms | 3.00 ms");
        assert_eq!(cells(&[], "ms"), "– | –");
    }
}
