//! Parser of the table in the kernel. Total: a malformed message is an error. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use kernel::{
    netlink::wire::{MalformedMessage, ReceivedMessage},
    nftables::{
        parse::{RawValue, expressions_are, for_each_raw, parse_hook},
        uapi,
    },
};

use super::{
    desired::{PolicyElement, PolicyValue},
    rules::rules,
    schema::{PolicyChain, PolicyMap, PolicyMapShape, TABLE},
};

/// Fixed parts of the table as read from the kernel, compared with their definitions.
#[derive(Debug, Default)]
pub struct PolicyStructure {
    differs: bool,
    maps: BTreeSet<PolicyMap>,
    chains: BTreeSet<PolicyChain>,
    /// Number of rules of each chain so far.
    rules: BTreeMap<PolicyChain, usize>,
}

impl PolicyStructure {
    /// Adds a chain; chains of other tables are ignored.
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
            let same = PolicyChain::parse(name).filter(|chain| hook == chain.hook());
            let same = same.filter(|_| hook.is_none() || kind == "filter");
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
        let Some(chain) = PolicyChain::parse(name) else {
            self.differs = true;
            return Ok(());
        };
        let position = self.rules.entry(chain).or_default();
        self.differs |= match (rules(chain).get(*position), exprs) {
            (Some(wanted), Some(exprs)) => !expressions_are(wanted, exprs)?,
            (None, _) | (_, None) => true,
        };
        *position += 1;
        Ok(())
    }

    /// Adds a map.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn map(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut name, mut shape) = ("", PolicyMapShape::default());
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_SET_NAME => name = attribute.text()?,
                uapi::NFTA_SET_FLAGS => shape.flags = attribute.be32()?,
                uapi::NFTA_SET_KEY_TYPE => shape.key_type = attribute.be32()?,
                uapi::NFTA_SET_KEY_LEN => shape.key_length = attribute.be32()?,
                uapi::NFTA_SET_DATA_TYPE => shape.data_type = attribute.be32()?,
                uapi::NFTA_SET_DATA_LEN => shape.data_length = attribute.be32()?,
                _ => {}
            }
        }
        if shape.data_type == uapi::NFT_DATA_VERDICT {
            // For verdicts the kernel reports the size of an internal structure.
            shape.data_length = 0;
        }
        let same = PolicyMap::parse(name).filter(|map| map.shape() == shape);
        self.differs |= same.is_none();
        self.maps.extend(same);
        Ok(())
    }

    /// Returns true if the table has all chains, rules and maps, and no others.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let has_rules =
            |chain: PolicyChain| self.rules.get(&chain).copied().unwrap_or_default() == rules(chain).len();
        !self.differs
            && self.maps.len() == PolicyMap::all().count()
            && self.chains.len() == PolicyChain::all().count()
            && PolicyChain::all().all(has_rules)
    }
}

/// Element as read from the kernel, with its packet counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedElement {
    /// Key of the element.
    pub element: PolicyElement,
    /// Value of the element. `None` if this program does not write such values.
    pub value: Option<PolicyValue>,
    /// Number of packets that found the element; 0 in maps without counters.
    pub packets: u64,
}

/// Extracts the elements of a map from a message.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn elements(
    map: PolicyMap,
    message: &ReceivedMessage<'_>,
    mut each: impl FnMut(CountedElement),
) -> Result<(), MalformedMessage> {
    for_each_raw(message, |raw| {
        let value = match raw.value {
            RawValue::None => Some(PolicyValue::Absent),
            RawValue::Bytes(bytes) => Some(PolicyValue::Bytes(bytes.to_vec())),
            RawValue::Goto(chain) => PolicyChain::parse(chain).map(PolicyValue::Goto),
            RawValue::Other => None,
        };
        let high = raw.key_end.filter(|_| map.has_intervals()).map(<[u8]>::to_vec);
        let element = PolicyElement { map, low: raw.key.to_vec(), high };
        each(CountedElement { element, value, packets: raw.packets });
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
            let mut structure = PolicyStructure::default();
            let _ = (structure.chain(&message), structure.rule(&message), structure.map(&message));
            let _ = elements(PolicyMap::Ports, &message, |_| ());
            prop_assert!(!structure.is_complete());
        }
    }
}
