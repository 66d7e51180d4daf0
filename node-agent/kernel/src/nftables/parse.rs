//! Parser of nf_tables messages, independent of the tables they belong to. Total: a malformed message is an
//! error. Does no I/O.

use super::{Hook, expr::Expr, uapi};
use crate::netlink::wire::{Attribute, AttributeIter, MalformedMessage, ReceivedMessage};

/// Set or map element as the kernel encodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawElement<'a> {
    /// Bytes of the key, or of the low end of its interval.
    pub key: &'a [u8],
    /// Bytes of the high end of the key's interval; `None` if the kernel reports no high end.
    pub key_end: Option<&'a [u8]>,
    /// Value that a map contains for the key.
    pub value: RawValue<'a>,
    /// True if the element marks the end of an interval.
    pub is_end: bool,
    /// Packet counter of the element; 0 if the set does not count.
    pub packets: u64,
}

/// Value of a set or map element as the kernel encodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawValue<'a> {
    /// Absence of a value, as in every element of a set.
    None,
    /// Goto verdict to the chain of this name.
    Goto(&'a str),
    /// Data value, as bytes.
    Bytes(&'a [u8]),
    /// Value of a kind that this program never writes.
    Other,
}

/// Calls `each` for every set or map element in a message; the element is still in the kernel's encoding.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn for_each_raw(
    message: &ReceivedMessage<'_>,
    mut each: impl FnMut(&RawElement<'_>),
) -> Result<(), MalformedMessage> {
    for attribute in message.attributes() {
        let attribute = attribute?;
        if attribute.kind == uapi::NFTA_SET_ELEM_LIST_ELEMENTS {
            for element in attribute.nested() {
                each(&parse_element(element?.nested())?);
            }
        }
    }
    Ok(())
}

/// Parses the ruleset generation from the response to [`super::render::get_generation`]; `None` for other
/// messages.
///
/// # Errors
/// Returns an error if the message is malformed.
pub fn generation(message: &ReceivedMessage<'_>) -> Result<Option<u32>, MalformedMessage> {
    for attribute in message.attributes() {
        let attribute = attribute?;
        if attribute.kind == uapi::NFTA_GEN_ID {
            return attribute.be32().map(Some);
        }
    }
    Ok(None)
}

fn parse_element(attributes: AttributeIter<'_>) -> Result<RawElement<'_>, MalformedMessage> {
    let mut raw = RawElement { key: &[], key_end: None, value: RawValue::None, is_end: false, packets: 0 };
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_SET_ELEM_KEY => raw.key = data_value(&attribute)?.unwrap_or_default(),
            uapi::NFTA_SET_ELEM_KEY_END => raw.key_end = data_value(&attribute)?,
            uapi::NFTA_SET_ELEM_DATA => raw.value = parse_value(&attribute)?,
            uapi::NFTA_SET_ELEM_EXPR => raw.packets = parse_counter(attribute.nested())?,
            uapi::NFTA_SET_ELEM_FLAGS => {
                raw.is_end = attribute.be32()? & uapi::NFT_SET_ELEM_INTERVAL_END != 0;
            }
            _ => {}
        }
    }
    Ok(raw)
}

fn parse_counter(attributes: AttributeIter<'_>) -> Result<u64, MalformedMessage> {
    for attribute in attributes {
        let attribute = attribute?;
        if attribute.kind == uapi::NFTA_EXPR_DATA {
            for inner in attribute.nested() {
                let inner = inner?;
                if inner.kind == uapi::NFTA_COUNTER_PACKETS {
                    return inner.be64();
                }
            }
        }
    }
    Ok(0)
}

fn data_value<'a>(attribute: &Attribute<'a>) -> Result<Option<&'a [u8]>, MalformedMessage> {
    for inner in attribute.nested() {
        let inner = inner?;
        if inner.kind == uapi::NFTA_DATA_VALUE {
            return Ok(Some(inner.value));
        }
    }
    Ok(None)
}

fn parse_value<'a>(attribute: &Attribute<'a>) -> Result<RawValue<'a>, MalformedMessage> {
    for inner in attribute.nested() {
        let inner = inner?;
        match inner.kind {
            uapi::NFTA_DATA_VALUE => return Ok(RawValue::Bytes(inner.value)),
            uapi::NFTA_DATA_VERDICT => return parse_verdict(inner.nested()),
            _ => {}
        }
    }
    Ok(RawValue::Other)
}

fn parse_verdict(attributes: AttributeIter<'_>) -> Result<RawValue<'_>, MalformedMessage> {
    let (mut is_goto, mut chain) = (false, None);
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_VERDICT_CODE => is_goto = attribute.value == uapi::NFT_GOTO.to_be_bytes(),
            uapi::NFTA_VERDICT_CHAIN => chain = Some(attribute.text()?),
            _ => {}
        }
    }
    Ok(chain.filter(|_| is_goto).map_or(RawValue::Other, RawValue::Goto))
}

/// Parses the hook of a base chain.
///
/// # Errors
/// Returns an error if the attribute list is malformed.
pub fn parse_hook(attributes: AttributeIter<'_>) -> Result<Hook, MalformedMessage> {
    let mut hook = Hook { number: u32::MAX, priority: 0 };
    for attribute in attributes {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_HOOK_HOOKNUM => hook.number = attribute.be32()?,
            uapi::NFTA_HOOK_PRIORITY => hook.priority = attribute.be32()?.cast_signed(),
            _ => {}
        }
    }
    Ok(hook)
}

/// Returns true if the expressions of a rule in the kernel are exactly the wanted ones.
///
/// # Errors
/// Returns an error if the attribute list is malformed.
pub fn expressions_are(wanted: &[Expr], exprs: AttributeIter<'_>) -> Result<bool, MalformedMessage> {
    let mut wanted = wanted.iter();
    for expr in exprs {
        let (mut name, mut data) = ("", AttributeIter::new(&[]));
        for attribute in expr?.nested() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_EXPR_NAME => name = attribute.text()?,
                uapi::NFTA_EXPR_DATA => data = attribute.nested(),
                _ => {}
            }
        }
        let matches = match wanted.next() {
            Some(wanted) => wanted.matches(name, data)?,
            None => false,
        };
        if !matches {
            return Ok(false);
        }
    }
    Ok(wanted.next().is_none())
}
