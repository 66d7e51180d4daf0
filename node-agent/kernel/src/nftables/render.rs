//! Encoder of messages about whole tables or the whole ruleset, in the family `inet`. Pure.

use super::uapi;
use crate::netlink::wire::{Attributes, Message, netfilter_header};

/// Builds a message of the family `inet`, without requesting an acknowledgement.
#[must_use]
pub fn message(kind: u16, flags: u16, attributes: Attributes) -> Message {
    let header = netfilter_header(uapi::NFPROTO_INET, 0);
    Message { kind, flags: uapi::NLM_F_REQUEST | flags, header, attributes }
}

/// Creates an empty table in the family `inet`.
#[must_use]
pub fn add_table(table: &str) -> Message {
    let attributes = Attributes::default().text(uapi::NFTA_TABLE_NAME, table);
    message(uapi::NFT_MSG_NEWTABLE, uapi::NLM_F_CREATE, attributes)
}

/// Removes a table with its chains, sets and elements.
#[must_use]
pub fn delete_table(table: &str) -> Message {
    message(uapi::NFT_MSG_DELTABLE, 0, Attributes::default().text(uapi::NFTA_TABLE_NAME, table))
}

/// Requests the table of this name.
#[must_use]
pub fn get_table(table: &str) -> Message {
    message(uapi::NFT_MSG_GETTABLE, uapi::NLM_F_ACK, Attributes::default().text(uapi::NFTA_TABLE_NAME, table))
}

/// Requests all chains of the family; the kernel cannot filter by table.
#[must_use]
pub fn dump_chains() -> Message {
    message(uapi::NFT_MSG_GETCHAIN, uapi::NLM_F_DUMP, Attributes::default())
}

/// Requests the rules of a table, or of one of its chains.
#[must_use]
pub fn dump_rules(table: &str, chain: Option<&str>) -> Message {
    let mut attributes = Attributes::default().text(uapi::NFTA_RULE_TABLE, table);
    if let Some(chain) = chain {
        attributes = attributes.text(uapi::NFTA_RULE_CHAIN, chain);
    }
    message(uapi::NFT_MSG_GETRULE, uapi::NLM_F_DUMP, attributes)
}

/// Requests the sets of a table.
#[must_use]
pub fn dump_sets(table: &str) -> Message {
    message(uapi::NFT_MSG_GETSET, uapi::NLM_F_DUMP, Attributes::default().text(uapi::NFTA_SET_TABLE, table))
}

/// Requests the generation of the ruleset, which every committed transaction of any program increases.
#[must_use]
pub fn get_generation() -> Message {
    let header = netfilter_header(0, 0);
    Message { header, ..message(uapi::NFT_MSG_GETGEN, uapi::NLM_F_ACK, Attributes::default()) }
}
