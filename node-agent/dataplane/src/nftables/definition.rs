//! Definitions of the backend's sets and maps: flags, key and value types.

use kernel::{netlink::wire::Attributes, nftables::uapi};
use model::primitives::net::IpFamily;

use super::{
    notes,
    schema::{AFFINITY_CLIENTS_MAX, LookupType, SetId, SetRole},
};

/// Definition of a set or map: flags, key and value, in the form that the kernel reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetShape {
    /// Flags of the set (`NFT_SET_…`).
    pub flags: u32,
    /// Data types of the key fields as `nft` numbers them, six bits per field.
    pub key_type: u32,
    /// Length of the key in bytes, including the padding of its fields.
    pub key_length: u32,
    /// Data types of the value fields; [`uapi::NFT_DATA_VERDICT`] if the value is a chain, 0 for a set.
    pub data_type: u32,
    /// Length of the value in bytes; 0 if the value is a chain or there is none.
    pub data_length: u32,
    /// True if every element has a packet counter.
    pub is_counted: bool,
}

// Type numbers of the `nft` command. The kernel stores them only for listings.
const TYPE_BITS: u32 = 6;
const TYPE_INTEGER: Field = Field { number: 4, length: 4 };
const TYPE_PROTOCOL: Field = Field { number: 12, length: 1 };
const TYPE_PORT: Field = Field { number: 13, length: 2 };
const TYPE_MARK: Field = Field { number: 19, length: 4 };

/// Field of a key or value: data type and length.
#[derive(Debug, Clone, Copy)]
struct Field {
    number: u32,
    /// Length in bytes, without the padding to a multiple of four.
    length: u32,
}

const fn address(family: IpFamily) -> Field {
    match family {
        IpFamily::V4 => Field { number: 7, length: 4 },
        IpFamily::V6 => Field { number: 8, length: 16 },
    }
}

/// Returns the fields by which a lookup identifies a frontend.
fn frontend(place: LookupType, family: IpFamily) -> Vec<Field> {
    match place {
        LookupType::Address => vec![address(family), TYPE_PROTOCOL, TYPE_PORT],
        LookupType::Range => vec![address(family), TYPE_PROTOCOL, TYPE_MARK],
        LookupType::NodePort => vec![TYPE_PROTOCOL, TYPE_PORT],
    }
}

fn target(family: IpFamily) -> Vec<Field> {
    vec![address(family), TYPE_PORT]
}

fn key(set: SetId) -> Vec<Field> {
    let family = set.family;
    match set.role {
        SetRole::Chains(_) | SetRole::ChainsFrom(_) => vec![TYPE_MARK],
        SetRole::Dispatch(place) | SetRole::DispatchFrom(place, _) | SetRole::AffinityGroups(place) => {
            frontend(place, family)
        }
        SetRole::Endpoints(place) | SetRole::AffinitySlots(place) => {
            [frontend(place, family), vec![TYPE_INTEGER]].concat()
        }
        SetRole::AllowedSources(place) => [frontend(place, family), vec![address(family)]].concat(),
        SetRole::Affinity => vec![TYPE_MARK, address(family)],
        SetRole::AffinityTargets(place, _) => [frontend(place, family), vec![TYPE_MARK]].concat(),
        SetRole::Ranges | SetRole::Failover => frontend(LookupType::Address, family),
        SetRole::VirtualAddresses | SetRole::Networks(_) => vec![address(family)],
        SetRole::Hairpins => vec![address(family), address(family)],
    }
}

/// Returns the definition that a set of this backend must have.
#[must_use]
pub fn set_shape(set: SetId) -> SetShape {
    let key = key(set);
    let (interval, concat) = (uapi::NFT_SET_INTERVAL, uapi::NFT_SET_INTERVAL | uapi::NFT_SET_CONCAT);
    let (flags, value) = match set.role {
        SetRole::Chains(_) | SetRole::ChainsFrom(_) => (uapi::NFT_SET_MAP, Vec::new()),
        SetRole::Dispatch(_) | SetRole::DispatchFrom(..) => (uapi::NFT_SET_MAP, vec![TYPE_MARK]),
        SetRole::Endpoints(_) | SetRole::AffinityTargets(..) => (uapi::NFT_SET_MAP, target(set.family)),
        SetRole::Affinity => {
            (uapi::NFT_SET_MAP | uapi::NFT_SET_TIMEOUT | uapi::NFT_SET_EVAL, vec![TYPE_MARK])
        }
        SetRole::AffinityGroups(_) | SetRole::AffinitySlots(_) => (uapi::NFT_SET_MAP, vec![TYPE_MARK]),
        SetRole::AllowedSources(_) => (concat, Vec::new()),
        SetRole::Ranges => (concat | uapi::NFT_SET_MAP, vec![TYPE_MARK]),
        SetRole::Failover | SetRole::VirtualAddresses | SetRole::Hairpins => (0, Vec::new()),
        SetRole::Networks(_) => (interval, Vec::new()),
    };
    let is_verdict = matches!(set.role, SetRole::Chains(_) | SetRole::ChainsFrom(_));
    SetShape {
        flags,
        key_type: types(&key),
        key_length: length(&key),
        data_type: if is_verdict { uapi::NFT_DATA_VERDICT } else { types(&value) },
        data_length: length(&value),
        is_counted: matches!(set.role, SetRole::Endpoints(_) | SetRole::AffinityTargets(..)),
    }
}

fn types(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |types, field| types << TYPE_BITS | field.number)
}

fn length(fields: &[Field]) -> u32 {
    fields.iter().map(|field| field.length.next_multiple_of(4)).sum()
}

/// Returns the netlink attributes of the message that creates a set.
pub(super) fn set_definition(table: &str, set: SetId) -> Attributes {
    let shape = set_shape(set);
    let id = (1u32..).zip(SetId::all()).find(|(_, other)| *other == set).map_or(0, |(id, _)| id);
    let mut attributes = Attributes::default()
        .text(uapi::NFTA_SET_TABLE, table)
        .text(uapi::NFTA_SET_NAME, &set.to_string())
        .be32(uapi::NFTA_SET_FLAGS, shape.flags)
        .be32(uapi::NFTA_SET_KEY_TYPE, shape.key_type)
        .be32(uapi::NFTA_SET_KEY_LEN, shape.key_length)
        .be32(uapi::NFTA_SET_ID, id);
    if shape.data_type != 0 {
        attributes = attributes.be32(uapi::NFTA_SET_DATA_TYPE, shape.data_type);
        attributes = attributes.be32(uapi::NFTA_SET_DATA_LEN, shape.data_length);
    }
    if let Some(description) = description(set, shape) {
        attributes = attributes.nested(uapi::NFTA_SET_DESC, &description);
    }
    if shape.is_counted {
        let counter = Attributes::default().text(uapi::NFTA_EXPR_NAME, "counter");
        attributes = attributes
            .nested(uapi::NFTA_SET_EXPR, &counter.nested(uapi::NFTA_EXPR_DATA, &Attributes::default()));
    }
    match notes::key_and_value(set) {
        Some(notes) => attributes.bytes(uapi::NFTA_SET_USERDATA, &notes),
        None => attributes,
    }
}

fn description(set: SetId, shape: SetShape) -> Option<Attributes> {
    let empty = Attributes::default;
    if set.is_dynamic() {
        return Some(empty().be32(uapi::NFTA_SET_DESC_SIZE, AFFINITY_CLIENTS_MAX));
    }
    (shape.flags & uapi::NFT_SET_CONCAT != 0).then(|| {
        let fields = key(set).into_iter().fold(empty(), |list, field| {
            list.nested(uapi::NFTA_LIST_ELEM, &empty().be32(uapi::NFTA_SET_FIELD_LEN, field.length))
        });
        empty().nested(uapi::NFTA_SET_DESC_CONCAT, &fields)
    })
}
