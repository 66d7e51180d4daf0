//! Counts of banned words in the comments of each workspace member.

use std::collections::BTreeMap;

/// Words that do not open a doc comment: types and fields open with a noun, functions with a verb.
const BANNED_OPENERS: [&str; 17] = [
    "What", "Who", "Whoever", "Whom", "Whose", "How", "Where", "Whether", "Why", "When", "It", "Its", "That",
    "Those", "They", "Nothing", "Nobody",
];

/// Counts of the comments in one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prose {
    /// Number of doc comments.
    pub(crate) docs: usize,
    /// Number of doc comments that open with a banned word.
    pub(crate) banned: usize,
    /// Number of words in all comments.
    pub(crate) words: usize,
    /// Occurrences of the word "what" in all comments.
    pub(crate) whats: usize,
}

impl Prose {
    /// Returns the share of doc comments with a banned opener, in hundredths of a percent.
    pub(crate) fn banned_share(&self) -> usize {
        self.banned * 10_000 / self.docs.max(1)
    }

    /// Returns the number of occurrences of "what" per 100,000 words.
    pub(crate) fn what_rate(&self) -> usize {
        self.whats * 100_000 / self.words.max(1)
    }

    /// Adds the comments of a source file.
    pub(crate) fn add(&mut self, text: &str) {
        let mut before = "";
        for line in text.lines().map(str::trim_start) {
            let prefix =
                ["///", "//!", "//"].into_iter().find(|prefix| line.starts_with(prefix)).unwrap_or("");
            if !prefix.is_empty() {
                // The command `what-if` is a name.
                let line = line.trim_start_matches('/').trim_start_matches('!').replace("what-if", "");
                let words = words(&line);
                if prefix != "//" && prefix != before {
                    self.docs += 1;
                    self.banned +=
                        usize::from(words.first().is_some_and(|first| BANNED_OPENERS.contains(first)));
                }
                self.words += words.len();
                self.whats += words.iter().filter(|word| word.eq_ignore_ascii_case("what")).count();
            }
            before = prefix;
        }
    }
}

/// Returns the words of a line; a word is a run of letters.
fn words(line: &str) -> Vec<&str> {
    line.split(|c: char| !c.is_alphabetic() && c != '\'').filter(|word| !word.is_empty()).collect()
}

/// Renders the counts in the format of the golden file `prose.txt`.
pub(crate) fn render(members: &BTreeMap<String, Prose>) -> String {
    let mut text =
        String::from("# member: % of doc comments with a banned opener, `what` in 1,000 words of comment\n");
    for (member, prose) in members {
        let hundredths = |value: usize| format!("{}.{:02}", value / 100, value % 100);
        let (banned, whats) = (hundredths(prose.banned_share()), hundredths(prose.what_rate()));
        text += &format!("{member} {banned} {whats}\n");
    }
    text
}

/// Parses a golden file. Returns the limits of each member, in the units of [`Prose::banned_share`] and
/// [`Prose::what_rate`].
pub(crate) fn ceilings(golden: &str) -> BTreeMap<String, (usize, usize)> {
    let number = |text: &str| text.replace('.', "").parse().unwrap_or(0);
    let rows = golden.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.next()?.to_owned(), (number(fields.next()?), number(fields.next()?))))
    });
    rows.collect()
}
