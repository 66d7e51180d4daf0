//! Suggestions for misspelled field names and values.

/// Maximum length in bytes of a misspelled word for which a suggestion is searched; no valid field name or
/// value is longer.
const WORD_MAX: usize = 40;

/// Returns the known word that differs from `word` in case only, or in one or two letters; `None` if no known
/// word is that close.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let wanted = plain(word);
    let slips = (wanted.chars().count() / 3).min(2);
    known
        .map(|candidate| (distance(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance of two words: the number of insertions, deletions, replacements and swaps of adjacent
/// letters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let exchange = rows[i][j] + usize::from(left != right);
            let mut least = exchange.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *left == b[j - 1] && a[i - 1] == *right {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["selector", "ports", "externalIPs", "clusterIP", "clusterIPs", "type"];
        let near = |word| nearest(word, known.into_iter());
        for (word, meant) in [
            ("selecter", "selector"),
            ("slector", "selector"),
            ("externalIps", "externalIPs"),
            ("external_ips", "externalIPs"),
            ("port", "ports"),
            ("tpye", "type"),
            ("clusterip", "clusterIP"),
        ] {
            assert_eq!(near(word), Some(meant), "{word}");
        }
        for word in ["", "x", "replicas", "containers", &"selector".repeat(1000)] {
            assert_eq!(near(word), None, "{word}");
        }
    }
}
