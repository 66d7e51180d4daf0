//! Rules for type names: a name is defined once in a crate and is no bare participle such as `Held`.

use std::collections::{BTreeMap, BTreeSet};

/// Type names that several modules of a crate may define.
const SHARED: [&str; 3] = ["Plan", "Options", "Error"];

/// Participles that do not end in `ed`.
const IRREGULAR: [&str; 30] = [
    "Begun",
    "Bound",
    "Broken",
    "Chosen",
    "Cut",
    "Done",
    "Drawn",
    "Driven",
    "Forgotten",
    "Found",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Hidden",
    "Kept",
    "Known",
    "Lost",
    "Made",
    "Met",
    "Owed",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spoken",
    "Taken",
    "Told",
    "Unread",
    "Written",
];

/// Nouns that end like a participle and are therefore permitted as type names.
const NOUNS: [&str; 5] = ["Bed", "Feed", "Need", "Seed", "Speed"];

/// Types defined in one member.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Number of definitions of each name.
    defined: BTreeMap<String, usize>,
}

impl Names {
    /// Adds the types that a source file defines.
    pub(crate) fn add(&mut self, text: &str) {
        for name in text.lines().filter_map(defined) {
            *self.defined.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Returns the names that are defined more than once.
    pub(crate) fn repeated(&self) -> BTreeSet<&str> {
        let repeated =
            self.defined.iter().filter(|(name, times)| **times > 1 && !SHARED.contains(&name.as_str()));
        repeated.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the names that consist of one participle, such as `Held`.
    pub(crate) fn participles(&self) -> BTreeSet<&str> {
        self.defined.keys().map(String::as_str).filter(|name| is_participle(name)).collect()
    }
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(char::is_lowercase);
    is_one_word && !NOUNS.contains(&name) && (name.ends_with("ed") || IRREGULAR.contains(&name))
}

/// Returns the name of the type that a line of source defines, or `None`.
fn defined(line: &str) -> Option<&str> {
    // Indented lines do not match: associated types, aliases inside functions, fields and variants.
    let mut rest = line;
    for word in ["pub(crate) ", "pub(super) ", "pub "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric()).next().filter(|name| !name.is_empty())
}
