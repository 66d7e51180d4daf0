//! Encoder of messages about whole tables or the whole ruleset, in the family `inet`. Does no I/O.

use super::uapi;
use crate::netlink::wire::{Attributes, Message, netfilter_header};

/// Builds a message of the family `inet`, without requesting an acknowledgement.
#[must_use]
pub fn message(kind: u16, flags: u16, attributes: Attributes) -> Message {
    let header = netfilter_header(uapi::NFPROTO_INET, 0);
    Message { kind, flags: uapi::NLM_F_REQUEST | flags, header, attributes }
}

/// Builds the request that creates an empty table in the family `inet`.
#[must_use]
pub fn add_table(table: &str) -> Message {
    let attributes = Attributes::default().text(uapi::NFTA_TABLE_NAME, table);
    message(uapi::NFT_MSG_NEWTABLE, uapi::NLM_F_CREATE, attributes)
}

/// Builds the request that removes a table with its chains, sets and elements.
#[must_use]
pub fn delete_table(table: &str) -> Message {
    message(uapi::NFT_MSG_DELTABLE, 0, Attributes::default().text(uapi::NFTA_TABLE_NAME, table))
}

/// Builds the request that reads the table of this name.
#[must_use]
pub fn get_table(table: &str) -> Message {
    message(uapi::NFT_MSG_GETTABLE, uapi::NLM_F_ACK, Attributes::default().text(uapi::NFTA_TABLE_NAME, table))
}

/// Builds the request that lists all chains of the family `inet`; the kernel cannot filter them by table.
#[must_use]
pub fn dump_chains() -> Message {
    message(uapi::NFT_MSG_GETCHAIN, uapi::NLM_F_DUMP, Attributes::default())
}

/// Builds the request that lists the rules of one chain of a table, or of the whole table if `chain` is
/// `None`.
#[must_use]
pub fn dump_rules(table: &str, chain: Option<&str>) -> Message {
    let mut attributes = Attributes::default().text(uapi::NFTA_RULE_TABLE, table);
    if let Some(chain) = chain {
        attributes = attributes.text(uapi::NFTA_RULE_CHAIN, chain);
    }
    message(uapi::NFT_MSG_GETRULE, uapi::NLM_F_DUMP, attributes)
}

/// Builds the request that lists the sets of a table.
#[must_use]
pub fn dump_sets(table: &str) -> Message {
    message(uapi::NFT_MSG_GETSET, uapi::NLM_F_DUMP, Attributes::default().text(uapi::NFTA_SET_TABLE, table))
}

/// Builds the request that reads the generation of the ruleset, a number that every committed transaction of
/// any program increases.
#[must_use]
pub fn get_generation() -> Message {
    let header = netfilter_header(0, 0);
    Message { header, ..message(uapi::NFT_MSG_GETGEN, uapi::NLM_F_ACK, Attributes::default()) }
}
