//! Reading of the table of the two-stage path.

use std::{collections::BTreeMap, io};

use kernel::{
    netlink::wire::{Attributes, MalformedMessage, ReceivedMessage},
    nftables::{
        parse::{RawElement, RawValue, expressions_are, for_each_raw, parse_hook},
        render::{dump_chains, dump_rules, dump_sets, get_table, message},
        uapi,
    },
    owner_routes::{self, OwnerNumber},
};
use model::{
    primitives::net::{self, IpFamily},
    program::survival,
};

use super::{
    super::{
        NftablesBackend,
        element::{Edge, parse_frontend},
        schema::Choice,
    },
    FrontendOwners, OwnerTable,
    schema::{OwnerChain, OwnerRole, OwnerSet},
    state::SlotOwner,
};

impl NftablesBackend {
    /// Reads the table, and the routes if there is a table.
    pub(super) fn read_owners(&mut self) -> io::Result<OwnerTable> {
        let name = OwnerTable::name(self.options.table);
        let errnos = self.netlink.ask(&[get_table(&name)], |_, _| Ok(()))?;
        match errnos.first().copied().unwrap_or_default() {
            0 => {}
            errno if io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotFound => {
                return Ok(OwnerTable::default());
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let mut table =
            OwnerTable { exists: true, numbers: owner_routes::numbers()?, ..OwnerTable::default() };
        table.is_foreign = !self.has_right_chains(&name)?;
        let mut sets = Vec::new();
        let found = self.payloads(&dump_sets(&name))?;
        for payload in &found {
            match set_of(&received(payload), &name).map_err(invalid)? {
                DumpedObject::Other => {}
                DumpedObject::Own(set) => sets.push(set),
                DumpedObject::Foreign => table.is_foreign = true,
            }
        }
        table.is_foreign |= OwnerSet::all().any(|set| !sets.contains(&set));
        for set in sets {
            let mut is_right = true;
            self.netlink.dump(
                &dump_elements(&name, set),
                || (),
                |(), answer| for_each_raw(answer, |raw| is_right &= take(&mut table, set, raw)),
            )?;
            table.is_foreign |= !is_right;
        }
        Ok(table)
    }

    fn payloads(&mut self, request: &kernel::netlink::wire::Message) -> io::Result<Vec<Vec<u8>>> {
        self.netlink.dump(request, Vec::new, |payloads, answer| {
            payloads.push(answer.payload.to_vec());
            Ok(())
        })
    }

    fn has_right_chains(&mut self, table: &str) -> io::Result<bool> {
        let mut chains: BTreeMap<OwnerChain, usize> = BTreeMap::new();
        let found = self.payloads(&dump_chains())?;
        for payload in &found {
            match chain_of(&received(payload), table).map_err(invalid)? {
                DumpedObject::Other => {}
                DumpedObject::Own(chain) => {
                    chains.insert(chain, 0);
                }
                DumpedObject::Foreign => return Ok(false),
            }
        }
        let rules = self.payloads(&dump_rules(table, None))?;
        for payload in &rules {
            let Some(chain) = rule_of(&received(payload), &chains).map_err(invalid)? else {
                return Ok(false);
            };
            *chains.entry(chain).or_default() += 1;
        }
        Ok(OwnerChain::ALL.iter().all(|chain| chains.get(chain) == Some(&chain.rules().len())))
    }
}

/// Object in a dump.
enum DumpedObject<T> {
    /// Object of another table.
    Other,
    /// Object of the schema.
    Own(T),
    /// Object in the table that the schema does not have.
    Foreign,
}

fn invalid(malformed: MalformedMessage) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
    ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
}

fn dump_elements(table: &str, set: OwnerSet) -> kernel::netlink::wire::Message {
    let attributes = Attributes::default().text(uapi::NFTA_SET_ELEM_LIST_TABLE, table);
    let attributes = attributes.text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string());
    message(uapi::NFT_MSG_GETSETELEM, uapi::NLM_F_DUMP, attributes)
}

fn chain_of(
    message: &ReceivedMessage<'_>,
    table: &str,
) -> Result<DumpedObject<OwnerChain>, MalformedMessage> {
    let (mut of, mut name, mut hook, mut kind) = ("", "", None, "");
    for attribute in message.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_CHAIN_TABLE => of = attribute.text()?,
            uapi::NFTA_CHAIN_NAME => name = attribute.text()?,
            uapi::NFTA_CHAIN_HOOK => hook = Some(parse_hook(attribute.nested())?),
            uapi::NFTA_CHAIN_TYPE => kind = attribute.text()?,
            _ => {}
        }
    }
    if of != table {
        return Ok(DumpedObject::Other);
    }
    let chain = OwnerChain::ALL.into_iter().find(|chain| chain.name() == name);
    let is_right = |chain: &OwnerChain| Some(chain.hook()) == hook && chain.chain_type() == kind;
    Ok(chain.filter(is_right).map_or(DumpedObject::Foreign, DumpedObject::Own))
}

/// Returns the chain of a rule that is the next one of this chain; `None` for another rule.
fn rule_of(
    message: &ReceivedMessage<'_>,
    chains: &BTreeMap<OwnerChain, usize>,
) -> Result<Option<OwnerChain>, MalformedMessage> {
    let (mut name, mut exprs) = ("", None);
    for attribute in message.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_RULE_CHAIN => name = attribute.text()?,
            uapi::NFTA_RULE_EXPRESSIONS => exprs = Some(attribute.nested()),
            _ => {}
        }
    }
    let chain = OwnerChain::ALL.into_iter().find(|chain| chain.name() == name);
    let position = chain.and_then(|chain| chains.get(&chain)).copied();
    let (Some(chain), Some(position), Some(exprs)) = (chain, position, exprs) else { return Ok(None) };
    match chain.rules().get(position) {
        Some(wanted) => Ok(expressions_are(wanted, exprs)?.then_some(chain)),
        None => Ok(None),
    }
}

fn set_of(message: &ReceivedMessage<'_>, table: &str) -> Result<DumpedObject<OwnerSet>, MalformedMessage> {
    let (mut of, mut name, mut shape) = ("", "", (0, 0, 0));
    for attribute in message.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_SET_TABLE => of = attribute.text()?,
            uapi::NFTA_SET_NAME => name = attribute.text()?,
            uapi::NFTA_SET_FLAGS => shape.0 = attribute.be32()?,
            uapi::NFTA_SET_KEY_TYPE => shape.1 = attribute.be32()?,
            uapi::NFTA_SET_KEY_LEN => shape.2 = attribute.be32()?,
            _ => {}
        }
    }
    if of != table {
        return Ok(DumpedObject::Other);
    }
    let set = OwnerSet::parse(name).filter(|set| set.shape() == shape);
    Ok(set.map_or(DumpedObject::Foreign, DumpedObject::Own))
}

/// Records an element. Returns false for an element that this program would not have written.
fn take(table: &mut OwnerTable, set: OwnerSet, raw: &RawElement<'_>) -> bool {
    if set.role == OwnerRole::Workloads {
        let Some(address) = address(set.family, raw.key) else { return false };
        table.workloads.insert(Edge { address, is_end: raw.is_end });
        return true;
    }
    let Some((frontend, slot)) = parse_frontend(set.family, raw.key) else { return false };
    let owners = table.frontends.entry(frontend).or_insert_with(|| FrontendOwners {
        choice: None,
        slots: vec![SlotOwner::default(); usize::try_from(survival::SLOTS).unwrap_or(0)],
    });
    let choice = match set.role {
        OwnerRole::BySource => Some(Choice::SourceAddress),
        OwnerRole::ByPort => Some(Choice::SourceAddressAndPort),
        OwnerRole::Workloads | OwnerRole::Owners | OwnerRole::Former | OwnerRole::Previous(_) => None,
    };
    if choice.is_some() {
        let is_only = owners.choice.is_none_or(|other| Some(other) == choice);
        owners.choice = choice;
        return is_only && slot.is_none();
    }
    let RawValue::Bytes(value) = raw.value else { return false };
    let mark = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let number = mark.and_then(OwnerNumber::of_mark);
    let place = slot.and_then(|slot| owners.slots.get_mut(usize::try_from(slot).ok()?));
    match (place, number) {
        (Some(place), Some(number)) => place.add(set.role, number),
        (Some(_) | None, _) => false,
    }
}

fn address(family: IpFamily, key: &[u8]) -> Option<std::net::IpAddr> {
    let number = key.iter().fold(0u128, |number, byte| (number << 8) | u128::from(*byte));
    let bytes = match family {
        IpFamily::V4 => 4,
        IpFamily::V6 => 16,
    };
    net::from_number(family, number).filter(|_| key.len() == bytes)
}
