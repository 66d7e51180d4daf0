//! Map from host names and wildcard names to values, with the most specific name first.

use std::iter::successors;

use imbl::OrdMap;

use crate::primitives::hostname_pattern::HostnamePattern;

/// Values by host name, by wildcard name, and for every host name. Clones share all data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostMap<T> {
    exact: OrdMap<Box<str>, T>,
    /// Values of wildcard names by the name below which they match.
    wildcard: OrdMap<Box<str>, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: OrdMap::new(), wildcard: OrdMap::new(), any: None }
    }
}

/// Returns a number that is higher for more specific patterns; `None` stands for every host name. Different patterns that match
/// the same host have different numbers.
pub(super) fn rank_of(pattern: Option<&HostnamePattern>) -> usize {
    pattern.map_or(0, |pattern| pattern.wildcard_base().map_or(usize::MAX, str::len))
}

impl<T: Default + Clone> HostMap<T> {
    /// Changes the value of a pattern if there is one, and removes it if `change` returns false.
    pub(super) fn change(&mut self, pattern: Option<&HostnamePattern>, change: impl FnOnce(&mut T) -> bool) {
        let Some(pattern) = pattern else {
            if let Some(value) = &mut self.any
                && !change(value)
            {
                self.any = None;
            }
            return;
        };
        let (map, name) = match pattern.wildcard_base() {
            Some(base) => (&mut self.wildcard, base),
            None => (&mut self.exact, pattern.as_str()),
        };
        if let Some(value) = map.get_mut(name)
            && !change(value)
        {
            map.remove(name);
        }
    }

    /// Returns the value of a pattern; `None` stands for every host name. Inserts the default value if there is none.
    pub(super) fn entry(&mut self, pattern: Option<&HostnamePattern>) -> &mut T {
        let Some(pattern) = pattern else { return self.any.get_or_insert_default() };
        match pattern.wildcard_base() {
            Some(base) => self.wildcard.entry(base.into()).or_default(),
            None => self.exact.entry(pattern.as_str().into()).or_default(),
        }
    }
}

impl<T> HostMap<T> {
    /// Returns the values whose patterns match a host, the most specific one first.
    pub(super) fn candidates<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a T> {
        self.ranked(host).map(|(_, value)| value)
    }

    /// Returns the values whose patterns match a host, the most specific one first, each with the number of [`rank_of`].
    pub(super) fn ranked<'a>(&'a self, host: &'a str) -> impl Iterator<Item = (usize, &'a T)> {
        let below = |name: &'a str| name.split_once('.').map(|(_, rest)| rest);
        let wildcard = successors(below(host), move |name| below(name));
        let wildcard = wildcard.filter_map(|base| Some((base.len(), self.wildcard.get(base)?)));
        let exact = self.exact.get(host).map(|value| (usize::MAX, value));
        exact.into_iter().chain(wildcard).chain(self.any.as_ref().map(|value| (0, value)))
    }

    /// Returns all values with their patterns: names, wildcard names, and `*` for every host name.
    pub(super) fn patterns(&self) -> impl Iterator<Item = (String, &T)> {
        let exact = self.exact.iter().map(|(name, value)| (name.to_string(), value));
        let wildcard = self.wildcard.iter().map(|(base, value)| (format!("*.{base}"), value));
        exact.chain(wildcard).chain(self.any.iter().map(|value| ("*".to_owned(), value)))
    }

    /// Returns all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wildcard.values()).chain(&self.any)
    }
}
