//! Generator of the reference page of a program's metrics, from its OpenMetrics text.

use std::collections::{BTreeMap, BTreeSet};

use crate::{cell, table};

/// Metric family with its type, help text and labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Returns a table of all metric families in an OpenMetrics text, in order of name. The label names come from the
/// samples, so every family needs at least one sample with all of its labels.
#[must_use]
pub fn families(text: &str) -> String {
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            kind.clone_into(&mut families.entry(name).or_default().kind);
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            // The encoder ends each help text with a period.
            help.trim_end_matches('.').clone_into(&mut families.entry(name).or_default().help);
        } else if let Some((name, labels)) = line.split_once('{') {
            let family = families.iter_mut().filter(|(family, _)| name.starts_with(**family));
            if let Some((_, family)) = family.max_by_key(|(family, _)| family.len()) {
                family.labels.extend(label_names(labels));
            }
        }
    }
    let rows: Vec<_> = families.iter().map(|(name, family)| row(name, family)).collect();
    table(["metric", "type", "labels", "meaning"], &rows)
}

/// Returns the label names of a sample, without `le`, the label of histogram buckets.
fn label_names(labels: &str) -> impl Iterator<Item = String> {
    let names = labels.split("=\"").filter_map(|part| part.rsplit([',', '{', '"']).next());
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    names.filter(is_name).filter(|name| *name != "le").map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn row(name: &str, Family { kind, help, labels }: &Family) -> [String; 4] {
    // Samples of counters have a suffix.
    let suffix = if kind == "counter" { "_total" } else { "" };
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    [format!("`{name}{suffix}`"), kind.clone(), labels.join(", "), cell(help)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_type_labels_and_help() {
        let text = "# HELP tide_waves Waves.\n# TYPE tide_waves counter\ntide_waves_total{shore=\"a,b\",wind=\"n=1\"} 1\n\
                    # HELP tide_waves_seconds Duration.\n# TYPE tide_waves_seconds histogram\n\
                    tide_waves_seconds_bucket{le=\"1\",shore=\"a\"} 2\n# EOF\n";
        let page = families(text);
        assert!(page.contains("| `tide_waves_total` | counter | `shore`, `wind` | Waves |"), "{page}");
        assert!(page.contains("| `tide_waves_seconds` | histogram | `shore` | Duration |"), "{page}");
    }
}
