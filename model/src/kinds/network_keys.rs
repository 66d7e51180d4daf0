//! Keys of the records of workload networks, apart from their specs, which the kinds of objects depend on.

use ipnet::IpNet;

use crate::{
    kinds::{
        attachment::WorkloadKey,
        block::block_name,
        resource::{Kind, ObjectKey},
    },
    primitives::name::{Label, Name},
};

/// Returns the key of the record of a block.
#[must_use]
pub fn block_key(cidr: &IpNet) -> ObjectKey {
    ObjectKey { kind: Kind::Block, namespace: None, name: block_name(cidr) }
}

/// Returns the key of the record of an Attachment: the name of its Node, a dot, and its id. Returns `None` if both
/// together are too long for a name.
#[must_use]
pub fn attachment_key(node: &Name, id: &Label) -> Option<ObjectKey> {
    let name = Name::parse(&format!("{node}.{id}")).ok()?;
    Some(ObjectKey { kind: Kind::Attachment, namespace: None, name })
}

impl WorkloadKey {
    /// Returns the object key of the Workload, with kind Workload.
    #[must_use]
    pub fn object_key(&self) -> ObjectKey {
        ObjectKey { kind: Kind::Workload, namespace: Some(self.namespace.clone()), name: self.name.clone() }
    }
}
