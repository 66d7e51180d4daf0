//! Parsed `nft list table` output for comparison: chains, and the elements of sets and maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use anyhow::{Context, Result, ensure};

/// Parsed output of `nft list` for one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listing {
    chains: BTreeSet<String>,
    /// Elements of each set or map, by its name: each key, with its value if the object is a map.
    sets: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

impl Listing {
    /// Parses a listing. Element counters are omitted.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut listing = Self::default();
        let mut set = String::new();
        let mut is_among_elements = false;
        for line in text.lines() {
            let line = line.trim();
            let mut elements = is_among_elements.then_some(line);
            if let Some(first) = line.strip_prefix("elements = {") {
                elements = Some(first);
            } else if let Some(name) = named(line, "chain ") {
                listing.chains.insert(name);
            } else if let Some(name) = named(line, "set ").or_else(|| named(line, "map ")) {
                listing.sets.insert(name.clone(), BTreeMap::new());
                set = name;
            }
            let Some(elements) = elements else { continue };
            is_among_elements = !elements.ends_with('}');
            let members = listing.sets.get_mut(&set).context("elements outside of a set")?;
            let elements = elements.trim_end_matches('}').split(',').map(str::trim);
            members.extend(elements.filter(|element| !element.is_empty()).map(element));
        }
        ensure!(!is_among_elements, "the listing ends among the elements of {set}");
        Ok(listing)
    }

    /// Returns the number of elements in all sets and maps.
    pub(super) fn elements(&self) -> usize {
        self.sets.values().map(BTreeMap::len).sum()
    }

    /// Returns the `nft` commands that turn this table into `after`, which may differ from it only in
    /// elements.
    pub(super) fn changed_into(&self, after: &Self, table: &str) -> Result<String> {
        let names = |listing: &Self| listing.sets.keys().cloned().collect::<Vec<_>>();
        ensure!(self.chains == after.chains, "the chains differ, so the change is not limited to elements");
        ensure!(names(self) == names(after), "the sets differ, so the change is not limited to elements");
        let mut text = String::new();
        for (set, old) in &self.sets {
            let new = after.sets.get(set).context("both tables have the same sets")?;
            let is_not_in = |other: &BTreeMap<_, _>, key: &String, value| other.get(key) != Some(value);
            let gone = old.iter().filter(|(key, value)| is_not_in(new, key, value));
            let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
            let come = new.iter().filter(|(key, value)| is_not_in(old, key, value));
            let come: Vec<_> = come
                .map(|(key, value)| {
                    value.as_ref().map_or_else(|| key.clone(), |value| format!("{key} : {value}"))
                })
                .collect();
            // The value of a map element is changed by deleting the element and adding a new one.
            for (verb, elements) in [("delete", gone), ("add", come)] {
                if !elements.is_empty() {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "{verb} element {table} {set} {{ {} }}", elements.join(", "));
                }
            }
        }
        Ok(text)
    }
}

/// Returns the name of the block that a line opens, or `None` if the block is not of the given kind, such as
/// `map`.
fn named(line: &str, kind: &str) -> Option<String> {
    Some(line.strip_prefix(kind)?.strip_suffix(" {")?.to_owned())
}

fn element(text: &str) -> (String, Option<String>) {
    let (key, value) = text.split_once(" : ").map_or((text, None), |(key, value)| (key, Some(value)));
    let key = key.split_once(" counter ").map_or(key, |(key, _)| key);
    (key.to_owned(), value.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "table inet t {\n\tmap m {\n\t\ttype ipv4_addr : verdict\n\t\tcounter\n\
        \t\telements = { 10.0.0.1 counter packets 3 bytes 9 : goto c,\n\t\t\t     10.0.0.2 : goto c }\n\t}\n\
        \tset s {\n\t\ttype ipv4_addr\n\t}\n\tchain c {\n\t\tip daddr { 1.1.1.1, 2.2.2.2 } drop\n\t}\n}\n";

    #[test]
    fn the_difference_of_listings_is_elements_that_go_and_come() {
        let other = ONE.replace("10.0.0.2 : goto c", "10.0.0.2 : drop").replace("10.0.0.1", "10.0.0.3");
        let other = other.replace("set s {\n", "set s {\n\t\telements = { 10.9.9.9 }\n");
        let [one, other] = [ONE, &other].map(|text| Listing::parse(text).unwrap());
        assert_eq!((one.elements(), other.elements()), (2, 3));
        let text = one.changed_into(&other, "inet t").unwrap();
        let expected = "delete element inet t m { 10.0.0.1, 10.0.0.2 }\n\
             add element inet t m { 10.0.0.2 : drop, 10.0.0.3 : goto c }\nadd element inet t s { 10.9.9.9 }\n";
        assert_eq!(text, expected);
        assert_eq!(one.changed_into(&one, "inet t").unwrap(), "");
    }

    #[test]
    fn another_chain_is_no_change_of_elements() {
        let other = ONE.replace("chain c {", "chain d {");
        let [one, other] = [ONE, &other].map(|text| Listing::parse(text).unwrap());
        assert!(one.changed_into(&other, "inet t").unwrap_err().to_string().contains("chain"));
    }

    #[test]
    fn a_listing_that_is_cut_off_is_told() {
        let cut = ONE.split(" }").next().unwrap();
        assert!(Listing::parse(cut).unwrap_err().to_string().contains("ends among"));
    }
}
