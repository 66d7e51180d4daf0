//! Comparison of kernel dumps with the desired table. Total: a malformed message is an error. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use kernel::{
    netlink::wire::{MalformedMessage, ReceivedMessage},
    nftables::{
        parse::{expressions_are, for_each_raw, parse_hook},
        uapi,
    },
};

use super::{FilterChain, FilterElement, FilterSet, FilterTable, TABLE};

/// Comparison that collects the messages of all dumps, until [`Self::is_equal`].
#[derive(Debug)]
pub struct Comparison<'a> {
    desired: &'a FilterTable,
    differs: bool,
    sets: BTreeSet<FilterSet>,
    chains: BTreeSet<FilterChain>,
    rules: BTreeMap<FilterChain, usize>,
}

impl<'a> Comparison<'a> {
    /// Creates a comparison with a table.
    #[must_use]
    pub const fn new(desired: &'a FilterTable) -> Self {
        Self {
            desired,
            differs: false,
            sets: BTreeSet::new(),
            chains: BTreeSet::new(),
            rules: BTreeMap::new(),
        }
    }

    /// Adds a chain. Chains of other tables are ignored.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn chain(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name, mut kind, mut hook) = ("", "", "", None);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_CHAIN_TABLE => table = attribute.text()?,
                uapi::NFTA_CHAIN_NAME => name = attribute.text()?,
                uapi::NFTA_CHAIN_TYPE => kind = attribute.text()?,
                uapi::NFTA_CHAIN_HOOK => hook = Some(parse_hook(attribute.nested())?),
                _ => {}
            }
        }
        if table == TABLE {
            let same = self.desired.chains.keys().find(|chain| chain.name() == name);
            let same = same.filter(|chain| hook == Some(chain.hook()) && kind == chain.kind());
            self.differs |= same.is_none();
            self.chains.extend(same);
        }
        Ok(())
    }

    /// Adds a rule. The rules of a chain must be added in their order.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn rule(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut name, mut exprs) = ("", None);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_RULE_CHAIN => name = attribute.text()?,
                uapi::NFTA_RULE_EXPRESSIONS => exprs = Some(attribute.nested()),
                _ => {}
            }
        }
        let chain = self.desired.chains.iter().find(|(chain, _)| chain.name() == name);
        let Some((chain, rules)) = chain else {
            self.differs = true;
            return Ok(());
        };
        let position = self.rules.entry(*chain).or_default();
        self.differs |= match (rules.get(*position), exprs) {
            (Some(wanted), Some(exprs)) => !expressions_are(wanted, exprs)?,
            (None, _) | (_, None) => true,
        };
        *position += 1;
        Ok(())
    }

    /// Adds a set.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn set(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut name, mut key, mut flags) = ("", (0, 0), 0);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_SET_NAME => name = attribute.text()?,
                uapi::NFTA_SET_KEY_TYPE => key.0 = attribute.be32()?,
                uapi::NFTA_SET_KEY_LEN => key.1 = attribute.be32()?,
                uapi::NFTA_SET_FLAGS => flags = attribute.be32()?,
                _ => {}
            }
        }
        let same = self.desired.sets.keys().find(|set| set.name() == name);
        let same = same.filter(|set| set.key() == key && set.flags() == flags);
        self.differs |= same.is_none();
        self.sets.extend(same);
        Ok(())
    }

    /// Adds all elements of a set.
    pub fn elements(&mut self, set: FilterSet, elements: &BTreeSet<FilterElement>) {
        self.differs |= self.desired.sets.get(&set) != Some(elements);
    }

    /// Returns true if the kernel has the desired table and nothing else in it.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let has_rules = |(chain, rules): (&FilterChain, &Vec<_>)| {
            self.rules.get(chain).copied().unwrap_or_default() == rules.len()
        };
        !self.differs
            && self.sets.len() == self.desired.sets.len()
            && self.chains.len() == self.desired.chains.len()
            && self.desired.chains.iter().all(has_rules)
    }
}

/// Extracts the elements from a message.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn elements(
    message: &ReceivedMessage<'_>,
    found: &mut BTreeSet<FilterElement>,
) -> Result<(), MalformedMessage> {
    for_each_raw(message, |raw| {
        // The kernel may add an end of the interval before the first one.
        let is_leading = raw.is_end && raw.key.iter().all(|byte| *byte == 0);
        if !is_leading {
            found.insert(FilterElement { key: raw.key.to_vec(), is_end: raw.is_end });
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_taken_in_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let message = ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload: &payload };
            let table = FilterTable::default();
            let mut comparison = Comparison::new(&table);
            let _ = (comparison.chain(&message), comparison.rule(&message), comparison.set(&message));
            let _ = elements(&message, &mut BTreeSet::new());
            let _ = comparison.is_equal();
        }
    }
}
