//! Difference between the contents of two stores. No I/O.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use store::Contents;

/// Maximum number of keys printed from each list (added, changed, removed), followed by the number of further
/// keys.
const NAMED_MAX: usize = 20;

/// Keys of the added, changed and removed objects and vault records. The contents of vault records are not
/// included, because they are secret.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
}

impl Difference {
    /// Compares the current contents of a store with those that will replace them.
    pub(super) fn between(before: &Contents, after: &Contents) -> Self {
        let objects = |contents: &Contents| -> BTreeMap<_, _> {
            contents.objects.iter().map(|object| (object.key().to_string(), object.clone())).collect()
        };
        let secrets = |contents: &Contents| -> BTreeMap<_, _> {
            contents.vault.iter().map(|(key, body)| (format!("secret {key}"), body.clone())).collect()
        };
        let mut difference = Self::default();
        difference.add(&objects(before), &objects(after));
        difference.add(&secrets(before), &secrets(after));
        difference
    }

    fn add<T: PartialEq>(&mut self, before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) {
        for (key, value) in after {
            match before.get(key) {
                None => self.added.push(key.clone()),
                Some(was) if was != value => self.changed.push(key.clone()),
                Some(_) => {}
            }
        }
        self.removed.extend(before.keys().filter(|key| !after.contains_key(*key)).cloned());
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, changed, removed } = self;
        let mut text = String::new();
        for (sign, keys) in [('+', added), ('~', changed), ('-', removed)] {
            for key in keys.iter().take(NAMED_MAX) {
                writeln!(text, "{sign} {key}")?;
            }
            if keys.len() > NAMED_MAX {
                writeln!(text, "{sign} and {} more", keys.len() - NAMED_MAX)?;
            }
        }
        let counts = [added, changed, removed].map(Vec::len);
        write!(f, "{text}{} would be added, {} changed, {} removed", counts[0], counts[1], counts[2])
    }
}
