//! Parser of kernel dumps. Total: a malformed message is an error; objects of other programs are recorded or
//! skipped.

use std::collections::BTreeMap;

use kernel::{
    netlink::wire::{AttributeIter, MalformedMessage, ReceivedMessage},
    nftables::{
        parse::{RawElement, expressions_are, for_each_raw, parse_hook},
        uapi,
    },
};

use super::{
    NftablesOptions,
    definition::{SetShape, set_shape},
    element::{Key, SetElement},
    mirror::NftablesMirror,
    schema::{Chain, SetId},
};

/// Mirror (copy in memory) of the table under construction, filled by the messages of several dumps.
#[derive(Debug, Default)]
pub struct Observation {
    options: NftablesOptions,
    mirror: NftablesMirror,
    /// Number of rules per chain so far, and a flag that is true if all of them were as wanted.
    rules: BTreeMap<Chain, (usize, bool)>,
}

impl Observation {
    /// Creates an empty observation.
    #[must_use]
    pub fn new(options: NftablesOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Parses the backend's table. A table with flags, such as dormant, counts as foreign.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn table(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        self.mirror.structure.table = true;
        for attribute in message.attributes() {
            let attribute = attribute?;
            if attribute.kind == uapi::NFTA_TABLE_FLAGS {
                self.mirror.structure.foreign |= attribute.be32()? != 0;
            }
        }
        Ok(())
    }

    /// Marks a chain as existing, so that its rules can be checked without a dump of all chains.
    pub fn expect_chain(&mut self, chain: Chain) {
        self.mirror.structure.chains.insert(chain, false);
    }

    /// Parses a chain. A chain of another table is skipped.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn chain(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name, mut hook, mut kind, mut accepts) = ("", "", None, None, true);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_CHAIN_TABLE => table = attribute.text()?,
                uapi::NFTA_CHAIN_NAME => name = attribute.text()?,
                uapi::NFTA_CHAIN_HOOK => hook = Some(parse_hook(attribute.nested())?),
                uapi::NFTA_CHAIN_POLICY => accepts = attribute.be32()? == uapi::NF_ACCEPT,
                uapi::NFTA_CHAIN_TYPE => kind = Some(attribute.text()?),
                _ => {}
            }
        }
        if table != self.options.table {
            return Ok(());
        }
        match Chain::parse(name) {
            Some(chain) if chain.hook() == hook && chain.chain_type() == kind && accepts => {
                self.mirror.structure.chains.insert(chain, false);
            }
            Some(_) | None => self.mirror.structure.foreign = true,
        }
        Ok(())
    }

    /// Parses a rule. Rules of a chain must arrive in order.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn rule(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name, mut exprs) = ("", "", None);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_RULE_TABLE => table = attribute.text()?,
                uapi::NFTA_RULE_CHAIN => name = attribute.text()?,
                uapi::NFTA_RULE_EXPRESSIONS => exprs = Some(attribute.nested()),
                _ => {}
            }
        }
        let Some(chain) = Chain::parse(name).filter(|_| table == self.options.table) else { return Ok(()) };
        let (position, all_right) = self.rules.entry(chain).or_insert((0, true));
        let is_right = rule_is_right(chain, *position, exprs, self.options)?;
        (*position, *all_right) = (*position + 1, *all_right && is_right);
        Ok(())
    }

    /// Parses a set or map.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn set(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name) = ("", "");
        let mut shape = SetShape::default();
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_SET_TABLE => table = attribute.text()?,
                uapi::NFTA_SET_NAME => name = attribute.text()?,
                uapi::NFTA_SET_FLAGS => shape.flags = attribute.be32()?,
                uapi::NFTA_SET_KEY_TYPE => shape.key_type = attribute.be32()?,
                uapi::NFTA_SET_KEY_LEN => shape.key_length = attribute.be32()?,
                uapi::NFTA_SET_DATA_TYPE => shape.data_type = attribute.be32()?,
                uapi::NFTA_SET_DATA_LEN => shape.data_length = attribute.be32()?,
                uapi::NFTA_SET_EXPR => shape.is_counted = true,
                _ => {}
            }
        }
        if shape.data_type == uapi::NFT_DATA_VERDICT {
            // For verdicts the kernel reports the size of an internal structure.
            shape.data_length = 0;
        }
        if table != self.options.table {
            return Ok(());
        }
        match SetId::parse(name) {
            Some(set) if set_shape(set) == shape => {
                self.mirror.structure.sets.insert(set);
            }
            Some(_) | None => self.mirror.structure.foreign = true,
        }
        Ok(())
    }

    /// Returns the sets of the backend found so far, whose elements must be dumped next.
    #[must_use]
    pub fn sets(&self) -> Vec<SetId> {
        self.mirror.structure.sets.iter().copied().collect()
    }

    /// Adds an element that was read from a set. `element` is only the key if this program would not have
    /// written the element.
    pub fn take_element(&mut self, set: SetId, element: Result<SetElement, Key>) {
        match element {
            Ok(element) => self.mirror.insert(&element),
            Err(key) => {
                self.mirror.strays.insert((set, key));
            }
        }
    }

    /// Returns the mirror of the table after all dumps have been parsed.
    #[must_use]
    pub fn finish(mut self) -> NftablesMirror {
        for (chain, is_right) in &mut self.mirror.structure.chains {
            let (count, all_right) = self.rules.get(chain).copied().unwrap_or((0, true));
            *is_right = all_right && count == chain.rules(self.options).len();
        }
        self.mirror
    }
}

/// Calls `each` for every set element in a message. If an element does not have the format of the set, because
/// another program added it, `each` receives only its key.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn for_each_element(
    set: SetId,
    message: &ReceivedMessage<'_>,
    mut each: impl FnMut(Result<SetElement, Key>),
) -> Result<(), MalformedMessage> {
    for_each_raw(message, |raw| each(SetElement::parse(set, raw).ok_or_else(|| key(raw))))
}

/// Calls `each` for the elements of a message with their packet counters, skipping elements that this program
/// would not have written.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn for_each_counted(
    set: SetId,
    message: &ReceivedMessage<'_>,
    mut each: impl FnMut(SetElement, u64),
) -> Result<(), MalformedMessage> {
    for_each_raw(message, |raw| {
        if let Some(element) = SetElement::parse(set, raw) {
            each(element, raw.packets);
        }
    })
}

fn key(raw: &RawElement<'_>) -> Key {
    Key { low: raw.key.to_vec(), high: raw.key_end.map(<[u8]>::to_vec) }
}

fn rule_is_right(
    chain: Chain,
    position: usize,
    exprs: Option<AttributeIter<'_>>,
    options: NftablesOptions,
) -> Result<bool, MalformedMessage> {
    match (chain.rules(options).get(position), exprs) {
        (Some(wanted), Some(exprs)) => expressions_are(wanted, exprs),
        (None, _) | (_, None) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use kernel::nftables::parse::generation;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_taken_in_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200), nested in any::<bool>()) {
            let mut payload = payload;
            if nested {
                // Wraps the random bytes in an element list, so that the element parser is reached.
                let inner = payload.clone();
                let length = u16::try_from(inner.len() + 4).unwrap();
                payload = vec![1, 0, 0, 0];
                payload.extend(length.to_ne_bytes());
                payload.extend(uapi::NFTA_SET_ELEM_LIST_ELEMENTS.to_ne_bytes());
                payload.extend(inner);
            }
            let message = ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload: &payload };
            let mut observation = Observation::default();
            let _ = observation.table(&message);
            let _ = (observation.chain(&message), observation.rule(&message), observation.set(&message), generation(&message));
            for set in SetId::all() {
                let _ = for_each_element(set, &message, |element| observation.take_element(set, element));
            }
            let _ = observation.finish();
        }
    }
}
