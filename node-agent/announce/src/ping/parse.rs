//! Parses kernel dumps of the echo reply table. Total: a malformed message is an error, and content that this
//! program would not create marks the table as foreign. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use kernel::{
    netlink::wire::{MalformedMessage, ReceivedMessage},
    nftables::{
        parse::{expressions_are, for_each_raw, parse_hook},
        uapi,
    },
};

use super::{
    plan::{Replies, Table},
    schema::{Reply, Set, TABLE},
};

/// Parser that collects the messages of all dumps of the echo reply table, until [`Self::finish`].
#[derive(Debug, Default)]
pub struct Observation {
    is_strange: bool,
    sets: BTreeSet<Set>,
    chains: BTreeSet<Reply>,
    /// Number of rules found so far in the chain for each kind of reply.
    rules: BTreeMap<Reply, usize>,
    replies: Replies,
}

impl Observation {
    /// Adds the table from a message. A table with flags, such as dormant, is marked as foreign.
    ///
    /// # Errors
    /// Returns [`MalformedMessage`] if the message is malformed.
    pub fn table(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        for attribute in message.attributes() {
            let attribute = attribute?;
            if attribute.kind == uapi::NFTA_TABLE_FLAGS {
                self.is_strange |= attribute.be32()? != 0;
            }
        }
        Ok(())
    }

    /// Adds a chain from a message. Chains of other tables are ignored.
    ///
    /// # Errors
    /// Returns an error if the message is malformed.
    pub fn chain(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name, mut kind, mut hook, mut accepts) = ("", "", "", None, false);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_CHAIN_TABLE => table = attribute.text()?,
                uapi::NFTA_CHAIN_NAME => name = attribute.text()?,
                uapi::NFTA_CHAIN_TYPE => kind = attribute.text()?,
                uapi::NFTA_CHAIN_HOOK => hook = Some(parse_hook(attribute.nested())?),
                uapi::NFTA_CHAIN_POLICY => accepts = attribute.be32()? == uapi::NF_ACCEPT,
                _ => {}
            }
        }
        if table == TABLE {
            let ours = Reply::ALL.into_iter().find(|reply| reply.chain() == name);
            let ours = ours.filter(|ours| hook == Some(ours.hook()) && kind == ours.chain_type() && accepts);
            self.is_strange |= ours.is_none();
            self.chains.extend(ours);
        }
        Ok(())
    }

    /// Adds a rule from a message. The rules of a chain must be added in their order.
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
        let ours = Reply::ALL.into_iter().find(|reply| reply.chain() == name);
        let Some(reply) = ours.filter(|_| table == TABLE) else { return Ok(()) };
        let position = self.rules.entry(reply).or_default();
        let is_right = match (reply.rules().get(*position), exprs) {
            (Some(wanted), Some(exprs)) => expressions_are(wanted, exprs)?,
            (None, _) | (_, None) => false,
        };
        *position += 1;
        self.is_strange |= !is_right;
        Ok(())
    }

    /// Adds a set from a message. A set with an unknown name or the wrong key type marks the table as
    /// foreign.
    ///
    /// # Errors
    ///
    /// Returns [`MalformedMessage`] if the message is malformed.
    pub fn set(&mut self, message: &ReceivedMessage<'_>) -> Result<(), MalformedMessage> {
        let (mut table, mut name, mut key, mut has_more) = ("", "", (0, 0), false);
        for attribute in message.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_SET_TABLE => table = attribute.text()?,
                uapi::NFTA_SET_NAME => name = attribute.text()?,
                uapi::NFTA_SET_KEY_TYPE => key.0 = attribute.be32()?,
                uapi::NFTA_SET_KEY_LEN => key.1 = attribute.be32()?,
                uapi::NFTA_SET_FLAGS => has_more |= attribute.be32()? != 0,
                uapi::NFTA_SET_EXPR => has_more = true,
                _ => {}
            }
        }
        if table == TABLE {
            let ours = Set::parse(name).filter(|set| set.key() == key && !has_more);
            self.is_strange |= ours.is_none();
            self.sets.extend(ours);
        }
        Ok(())
    }

    /// Returns the sets found so far, whose elements must be dumped next.
    #[must_use]
    pub fn sets(&self) -> Vec<Set> {
        self.sets.iter().copied().collect()
    }

    /// Adds addresses found in a set. An address in two sets marks the table as foreign.
    pub fn elements(&mut self, set: Set, addresses: &[IpAddr]) {
        for address in addresses {
            let before = self.replies.insert(*address, set.reply);
            self.is_strange |= before.is_some_and(|before| before != set.reply);
        }
    }

    /// Returns the table after all messages have been added.
    #[must_use]
    pub fn finish(self) -> Table {
        let Self { is_strange, sets, chains, rules, replies } = self;
        let has_rules = Reply::ALL.iter().all(|reply| rules.get(reply) == Some(&reply.rules().len()));
        let is_whole = sets.len() == Set::all().count() && chains.len() == Reply::ALL.len() && has_rules;
        if is_strange || !is_whole { Table::Strange } else { Table::Present(replies) }
    }
}

/// Extracts the addresses from a message with set elements.
///
/// # Errors
/// Returns [`MalformedMessage`] if the message is malformed.
pub fn addresses(message: &ReceivedMessage<'_>, addresses: &mut Vec<IpAddr>) -> Result<(), MalformedMessage> {
    let mut is_malformed = false;
    for_each_raw(message, |raw| {
        let v4 = <[u8; 4]>::try_from(raw.key).map(IpAddr::from);
        match v4.or_else(|_| <[u8; 16]>::try_from(raw.key).map(IpAddr::from)) {
            Ok(address) => addresses.push(address),
            Err(_) => is_malformed = true,
        }
    })?;
    if is_malformed { Err(MalformedMessage("an address has an invalid length")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_taken_in_without_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let message = ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload: &payload };
            let mut observation = Observation::default();
            let _ = (observation.table(&message), observation.chain(&message));
            let _ = (observation.rule(&message), observation.set(&message));
            let mut found = Vec::new();
            let _ = addresses(&message, &mut found);
            observation.elements(Set::parse("silent4").unwrap(), &found);
            prop_assert_eq!(observation.finish(), Table::Strange);
        }
    }
}
