//! Admission of Attachments that agents report, and of their Workloads.
//!
//! An Attachment fills the addresses of its Workload in the same write, and removes them when it ends. Entries of one
//! report do not depend on each other: an entry that cannot be accepted has no effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{Operation, Request, staged_object::StagedObject};
use crate::{
    cluster::{
        quota::{QuotaResource, Quotas},
        snapshot::Snapshot,
    },
    kinds::{
        attachment::{
            ATTACHMENT_ADDRESSES_MAX, AttachmentKind, AttachmentSpec, CONTAINER_ID_LENGTH_MAX,
            FAULT_MESSAGE_LENGTH_MAX, INTERFACE_LENGTH_MAX, WorkloadKey, attachment_id,
        },
        metadata::{Metadata, check_labels},
        network_keys::attachment_key,
        resource::{Kind, Object, ObjectKey, Spec},
        workload::WorkloadSpec,
    },
    primitives::{
        name::{Label, Name},
        net::{IpFamily, forbidden},
        violation::Violation,
    },
    wire::attachments::{
        ATTACHMENTS_MAX, AttachmentChanges, AttachmentRefusal, AttachmentRequest, RefusedAttachment,
    },
};

/// Length of a link-layer address in text form, such as `02:00:00:00:00:01`.
const MAC_LENGTH_MAX: usize = 17;

/// Attachments and Workloads during one write.
pub(super) struct AttachmentLedger<'a> {
    before: &'a Snapshot,
    quotas: &'a Quotas,
    touched: BTreeSet<ObjectKey>,
    nodes: BTreeSet<Name>,
}

impl<'a> AttachmentLedger<'a> {
    pub(super) const fn new(before: &'a Snapshot, quotas: &'a Quotas) -> Self {
        Self { before, quotas, touched: BTreeSet::new(), nodes: BTreeSet::new() }
    }

    /// Applies the reports of the request, removes the Attachments of the Nodes among the objects that it deletes, and
    /// sets the addresses of the Workloads that it writes. `changed` are the keys of the objects that it changes or deletes.
    pub(super) fn settle(&mut self, working: &mut Snapshot, request: &Request, changed: &[ObjectKey]) {
        for key in changed.iter().filter(|key| key.kind == Kind::Workload) {
            self.settle_workload(working, request, key);
        }
        for key in changed.iter().filter(|key| key.kind == Kind::Node) {
            if working.get(key).is_some() {
                continue;
            }
            let names: Vec<_> =
                working.attachments_of_node(&key.name).map(|one| one.metadata.name.clone()).collect();
            names.iter().for_each(|name| self.remove(working, name));
        }
        for operation in &request.operations {
            if let Operation::SetAttachments { node, changes } = operation {
                self.report(working, node, changes);
            }
        }
    }

    /// Returns the Nodes whose Attachments the write changes.
    pub(super) const fn nodes(&self) -> &BTreeSet<Name> {
        &self.nodes
    }

    /// Replaces the Workloads of the request by their states with the addresses of their Attachments.
    pub(super) fn fill_staged(&self, working: &Snapshot, staged: &mut [StagedObject]) {
        for staged_object in staged.iter_mut().filter(|one| self.touched.contains(&one.key)) {
            if let (Some(new), Some(filled)) = (&mut staged_object.new, working.get(&staged_object.key)) {
                *new = Object::clone(filled);
            }
        }
    }

    /// Returns the Attachments and Workloads that the write has changed, as staged objects. `staged` are the objects of
    /// the request itself.
    pub(super) fn into_staged(self, working: &Snapshot, staged: &[StagedObject]) -> Vec<StagedObject> {
        let is_staged = |key: &ObjectKey| staged.iter().any(|one| one.key == *key);
        let touched = self.touched.into_iter().filter(|key| !is_staged(key));
        let changed = touched.filter_map(|key| {
            let (old, new) = (self.before.get(&key), working.get(&key));
            if old.is_none() && new.is_none() || old.zip(new).is_some_and(|(old, new)| old.spec == new.spec) {
                return None;
            }
            Some(StagedObject::of_record(key, old.cloned(), new.map(|new| Object::clone(new))))
        });
        changed.collect()
    }

    fn report(&mut self, working: &mut Snapshot, node: &Name, changes: &AttachmentChanges) {
        let AttachmentChanges { complete, attachments, removed, wanted: _ } = changes;
        let is_gone = |id: &Label| removed.contains(id) || *complete && !attachments.contains_key(id);
        let gone: Vec<_> = working
            .attachments_of_node(node)
            .map(|object| object.metadata.name.clone())
            .filter(|name| attachment_id(node, name).is_some_and(|id| is_gone(&id)))
            .collect();
        // Removed first, so that their addresses are free for others of the same report.
        gone.iter().for_each(|name| self.remove(working, name));
        for (id, request) in attachments {
            if let Ok(Some(spec)) = decide(working, self.quotas, node, id, request) {
                self.record(working, node, id, request, spec);
            }
        }
    }

    /// Sets the addresses of a Workload that the request writes. A Workload that a client declares or deletes is no longer
    /// deleted with its Attachments; one that a client only changes still is.
    fn settle_workload(&mut self, working: &mut Snapshot, request: &Request, key: &ObjectKey) {
        let Some(namespace) = key.namespace.clone() else { return };
        let workload = WorkloadKey { namespace, name: key.name.clone() };
        let attachments: Vec<_> = working.attachments_of_workload(&workload).cloned().collect();
        if attachments.is_empty() {
            return;
        }
        if working.get(key).is_none() || request.operations.iter().any(|operation| declares(operation, key)) {
            for mut object in attachments {
                if let Spec::Attachment(spec) = &mut object.spec
                    && spec.owns_workload
                {
                    spec.owns_workload = false;
                    self.put(working, object);
                }
            }
        }
        self.settle_declared(working, request, key, &workload);
        self.fill(working, &workload, &[]);
    }

    /// Removes the Attachments of interfaces that a written Workload no longer declares, or declares with other addresses.
    /// Addresses that a client states stay; otherwise those of the Attachments end with them.
    fn settle_declared(
        &mut self,
        working: &mut Snapshot,
        request: &Request,
        key: &ObjectKey,
        workload: &WorkloadKey,
    ) {
        let spec = working.get(key).and_then(|object| object.as_workload()).cloned();
        let is_stale = |attachment: &AttachmentSpec| {
            !spec.as_ref().is_some_and(|spec| {
                let has_all = attachment.addresses.iter().all(|address| spec.addresses.contains(address));
                is_declared(spec, attachment) && (has_all || spec.addresses.is_empty())
            })
        };
        let stale: Vec<_> = working
            .attachments_of_workload(workload)
            .filter_map(|object| Some((object.metadata.name.clone(), object.as_attachment()?)))
            .filter(|(_, attachment)| attachment.declared && is_stale(attachment))
            .map(|(name, attachment)| (name, attachment.clone()))
            .collect();
        let states_addresses = request.operations.iter().any(|operation| declares(operation, key));
        for (name, attachment) in stale {
            let record = ObjectKey { kind: Kind::Attachment, namespace: None, name };
            working.remove(&record);
            self.touched.insert(record);
            self.nodes.insert(attachment.node.clone());
            if !states_addresses && !spec.as_ref().is_some_and(|spec| is_declared(spec, &attachment)) {
                self.fill(working, workload, &attachment.addresses);
            }
        }
    }

    fn record(
        &mut self,
        working: &mut Snapshot,
        node: &Name,
        id: &Label,
        request: &AttachmentRequest,
        mut spec: AttachmentSpec,
    ) {
        let Some(key) = attachment_key(node, id) else { return };
        let old = working.get(&key).cloned();
        let old_spec = old.as_ref().and_then(|object| object.as_attachment());
        if old_spec.is_some_and(|old| old.workload != spec.workload) {
            self.remove(working, &key.name);
        }
        let workload = spec.workload.object_key();
        let owns_already = old_spec.is_some_and(|old| old.owns_workload && old.workload == spec.workload);
        if working.get(&workload).is_none() {
            let mut metadata = Metadata::named(workload.name.clone(), workload.namespace.clone());
            metadata.labels = request.labels.clone();
            let made = WorkloadSpec { node: Some(node.clone()), ..new_workload() };
            self.put(working, Object { metadata, spec: Spec::Workload(made) });
            spec.owns_workload = true;
        } else {
            spec.owns_workload = owns_already;
        }
        let former = old_spec.map(|old| old.addresses.clone()).unwrap_or_default();
        let metadata =
            old.map_or_else(|| Metadata::named(key.name.clone(), None), |object| object.metadata.clone());
        let of = spec.workload.clone();
        self.put(working, Object { metadata, spec: Spec::Attachment(Box::new(spec)) });
        self.nodes.insert(node.clone());
        self.fill(working, &of, &former);
    }

    /// Removes an Attachment, the addresses that its Workload has from it, and a Workload that was created with it.
    fn remove(&mut self, working: &mut Snapshot, name: &Name) {
        let key = ObjectKey { kind: Kind::Attachment, namespace: None, name: name.clone() };
        let Some(object) = working.remove(&key) else { return };
        self.touched.insert(key);
        let Some(spec) = object.as_attachment() else { return };
        self.nodes.insert(spec.node.clone());
        let workload = working.get(&spec.workload.object_key()).and_then(|object| object.as_workload());
        if spec.declared && workload.is_some_and(|workload| is_declared(workload, spec)) {
            // The agent reports the interface again, with the addresses that the Workload keeps.
            return;
        }
        let heir = working.attachments_of_workload(&spec.workload).next().cloned();
        match heir {
            None if spec.owns_workload => {
                let workload = spec.workload.object_key();
                working.remove(&workload);
                self.touched.insert(workload);
            }
            Some(mut heir) if spec.owns_workload => {
                if let Spec::Attachment(heir) = &mut heir.spec {
                    heir.owns_workload = true;
                }
                self.put(working, heir);
                self.fill(working, &spec.workload, &spec.addresses);
            }
            None | Some(_) => self.fill(working, &spec.workload, &spec.addresses),
        }
    }

    /// Sets the addresses of a Workload. In each IP family, an address of an Attachment takes precedence over one that no
    /// Attachment has; the present one is kept if it is one of them. `former` are addresses that an Attachment no longer
    /// has.
    fn fill(&mut self, working: &mut Snapshot, workload: &WorkloadKey, former: &[IpAddr]) {
        let Some(object) = working.get(&workload.object_key()).cloned() else { return };
        let Some(spec) = object.as_workload() else { return };
        let attached: Vec<IpAddr> = working
            .attachments_of_workload(workload)
            .filter_map(|object| object.as_attachment())
            .flat_map(|attachment| attachment.addresses.iter().copied())
            .collect();
        let mut addresses = Vec::new();
        for family in IpFamily::ALL {
            let is_of_family = |address: &&IpAddr| IpFamily::of(**address) == family;
            let present = spec.addresses.iter().find(is_of_family);
            let kept = present.filter(|present| attached.contains(present));
            let own = present.filter(|present| !former.contains(present));
            addresses.extend(kept.or_else(|| attached.iter().find(is_of_family)).or(own).copied());
        }
        // The first address keeps its family, because responses list it first.
        let first = spec.addresses.first().map(|address| IpFamily::of(*address));
        addresses.sort_by_key(|address| first.is_some_and(|first| IpFamily::of(*address) != first));
        if addresses != spec.addresses {
            let spec = WorkloadSpec { addresses, ..spec.clone() };
            self.put(working, Object { metadata: object.metadata.clone(), spec: Spec::Workload(spec) });
        }
    }

    fn put(&mut self, working: &mut Snapshot, object: Object) {
        self.touched.insert(object.key());
        working.put(Arc::new(object));
    }
}

/// True if an operation writes an object regardless of its present state, and not only changes it.
fn declares(operation: &Operation, key: &ObjectKey) -> bool {
    match operation {
        Operation::Create(object) | Operation::Apply(object) | Operation::Restore { object, .. } => {
            object.key() == *key
        }
        Operation::Replace { .. }
        | Operation::Delete { .. }
        | Operation::RetryPending { .. }
        | Operation::SetAnnouncer { .. }
        | Operation::SetNodeLost { .. }
        | Operation::SetEndpointHealth { .. }
        | Operation::SetAttachments { .. }
        | Operation::SetIssuance { .. } => false,
    }
}

/// True if a Workload declares the interface of an Attachment.
fn is_declared(workload: &WorkloadSpec, attachment: &AttachmentSpec) -> bool {
    let AttachmentSpec { node, network, kind, interface: name, .. } = attachment;
    let interface = workload.interface.as_ref();
    workload.node.as_ref() == Some(node)
        && interface.is_some_and(|interface| {
            interface.name == *name && interface.kind == *kind && Some(&interface.network) == network.as_ref()
        })
}

fn new_workload() -> WorkloadSpec {
    WorkloadSpec { ready: true, ..WorkloadSpec::default() }
}

/// Decides on one entry of a report. Returns the record, or `None` if a later entry of the same id is recorded already.
///
/// # Errors
/// Returns the reason for the refusal.
fn decide(
    snapshot: &Snapshot,
    quotas: &Quotas,
    node: &Name,
    id: &Label,
    request: &AttachmentRequest,
) -> Result<Option<AttachmentSpec>, AttachmentRefusal> {
    let Some(key) = attachment_key(node, id) else {
        return Err(refusal(
            RefusedAttachment::Invalid,
            "the id and the name of the Node are too long together",
        ));
    };
    check_fields(request)?;
    let old = snapshot.get(&key).and_then(|object| object.as_attachment());
    if old.is_some_and(|old| old.generation > request.generation) {
        return Ok(None);
    }
    if old.is_none() && snapshot.attachment_count(node) >= ATTACHMENTS_MAX {
        let message = format!("a Node has at most {ATTACHMENTS_MAX} Attachments");
        return Err(refusal(RefusedAttachment::LimitReached, message));
    }
    for address in &request.addresses {
        check_address(snapshot, node, request, *address)?;
        if let Some(other) = snapshot.attachment_with(*address).filter(|other| **other != key.name) {
            let message = format!("{address} is an address of Attachment {other}");
            return Err(refusal(RefusedAttachment::AddressTaken, message));
        }
    }
    // Otherwise, the agent of any Node could give a Workload addresses of its own.
    let workload = snapshot.get(&request.workload.object_key()).and_then(|object| object.as_workload());
    if let Some(other) = workload.map(|spec| spec.node.as_ref()).filter(|other| *other != Some(node)) {
        let message = match other {
            Some(other) => format!("Workload {} is on Node {other}", request.workload),
            None => format!("Workload {} names no Node: set spec.node to {node}", request.workload),
        };
        return Err(refusal(RefusedAttachment::WorkloadElsewhere, message));
    }
    match workload {
        workload if request.declared => check_declaration(node, request, workload)?,
        Some(workload) => check_own_addresses(snapshot, request, workload)?,
        None => check_creation(snapshot, node, request)?,
    }
    check_quota(snapshot, quotas, request, workload)?;
    Ok(Some(record_of(node, request)))
}

/// Returns the record of an accepted entry.
fn record_of(node: &Name, request: &AttachmentRequest) -> AttachmentSpec {
    let AttachmentRequest {
        workload,
        labels: _,
        network,
        kind,
        interface,
        host_interface,
        mac,
        addresses,
        container_id,
        generation,
        declared,
        fault,
    } = request.clone();
    AttachmentSpec {
        node: node.clone(),
        network,
        workload,
        kind,
        interface,
        host_interface,
        mac,
        addresses,
        container_id,
        generation,
        owns_workload: false,
        declared,
        fault,
    }
}

/// Checks that the Workload declares the interface of the entry, with no other addresses.
fn check_declaration(
    node: &Name,
    request: &AttachmentRequest,
    workload: Option<&WorkloadSpec>,
) -> Result<(), AttachmentRefusal> {
    let record = record_of(node, request);
    let Some(workload) = workload.filter(|workload| is_declared(workload, &record)) else {
        let message = format!(
            "Workload {} does not declare interface {} of Node {node}",
            request.workload, request.interface
        );
        return Err(refusal(RefusedAttachment::NotDeclared, message));
    };
    let is_known = |address: &IpAddr| workload.addresses.contains(address);
    match request.addresses.iter().find(|address| !workload.addresses.is_empty() && !is_known(address)) {
        None => Ok(()),
        Some(address) => {
            let message = format!("Workload {} does not have the address {address}", request.workload);
            Err(refusal(RefusedAttachment::NotDeclared, message))
        }
    }
}

fn refusal(reason: RefusedAttachment, message: impl Into<String>) -> AttachmentRefusal {
    AttachmentRefusal { reason, message: message.into() }
}

/// Checks that the Attachment replaces no address that a user has given the Workload: it would be lost for good. Addresses of
/// blocks are no such ones, for example those of a restored Workload whose Attachment is reported anew.
fn check_own_addresses(
    snapshot: &Snapshot,
    request: &AttachmentRequest,
    workload: &WorkloadSpec,
) -> Result<(), AttachmentRefusal> {
    let is_attached = |address: IpAddr| {
        let mut attachments = snapshot.attachments_of_workload(&request.workload);
        attachments.any(|object| object.as_attachment().is_some_and(|one| one.addresses.contains(&address)))
    };
    let own = workload.addresses.iter().find(|own| {
        let mut replacing = request.addresses.iter().filter(|new| IpFamily::of(**new) == IpFamily::of(**own));
        replacing.any(|new| new != *own) && snapshot.block_with(**own).is_none() && !is_attached(**own)
    });
    let Some(own) = own else { return Ok(()) };
    let message = format!(
        "Workload {} has the address {own} of its own: attach under another name, or remove the address from the Workload",
        request.workload
    );
    Err(refusal(RefusedAttachment::WorkloadHasAddress, message))
}

/// Checks that the agent may create the Workload: otherwise it could add endpoints to every Service of the cluster.
fn check_creation(
    snapshot: &Snapshot,
    node: &Name,
    request: &AttachmentRequest,
) -> Result<(), AttachmentRefusal> {
    let workload = &request.workload;
    let create = format!("create Workload {workload} with spec.node: {node}");
    let Some((name, spec)) =
        request.network.as_ref().and_then(|name| Some((name, snapshot.workload_network(name)?)))
    else {
        let message = format!("an Attachment of kind Host needs a Workload that exists: {create}");
        return Err(refusal(RefusedAttachment::NamespaceNotAllowed, message));
    };
    let namespace = &workload.namespace;
    if !spec.namespaces.permit(namespace) {
        let message = format!(
            "WorkloadNetwork {name} does not permit agents to create Workloads in namespace {namespace}: add it to \
             spec.namespaces.names, or {create}"
        );
        return Err(refusal(RefusedAttachment::NamespaceNotAllowed, message));
    }
    if let Some(key) = request.labels.keys().find(|key| spec.reserves_label(key)) {
        let message = format!(
            "/labels/{key}: WorkloadNetwork {name} does not permit agents to set this label: leave it out, or {create} \
             and the label"
        );
        return Err(refusal(RefusedAttachment::LabelNotAllowed, message));
    }
    Ok(())
}

/// Checks that an entry alone does not exceed the quota of its namespace, so that it does not make the whole report fail.
/// `workload` is the present state of the Workload.
fn check_quota(
    snapshot: &Snapshot,
    quotas: &Quotas,
    request: &AttachmentRequest,
    workload: Option<&WorkloadSpec>,
) -> Result<(), AttachmentRefusal> {
    let namespace = &request.workload.namespace;
    let is_new = |address: &&IpAddr| {
        let present = workload.map(|spec| spec.addresses.as_slice()).unwrap_or_default();
        !present.iter().any(|other| IpFamily::of(*other) == IpFamily::of(**address))
    };
    let addresses = request.addresses.iter().filter(is_new).count();
    let growth =
        [(QuotaResource::Workloads, usize::from(workload.is_none())), (QuotaResource::Endpoints, addresses)];
    for (resource, more) in growth.into_iter().filter(|(_, more)| *more > 0) {
        let Some(limit) = quotas.limit(namespace, resource) else { continue };
        let used = snapshot.usage(namespace).get(resource);
        if used.saturating_add(more) > limit {
            let message = format!(
                "namespace {namespace} has a quota of {limit} {}, and {used} are in use: delete objects that are not \
                 needed, or have the operator raise `quota` of tidegate-api",
                resource.words()
            );
            return Err(refusal(RefusedAttachment::LimitReached, message));
        }
    }
    Ok(())
}

fn check_fields(request: &AttachmentRequest) -> Result<(), AttachmentRefusal> {
    let invalid = |message: String| Err(refusal(RefusedAttachment::Invalid, message));
    for (field, text) in [("interface", &request.interface), ("hostInterface", &request.host_interface)] {
        let is_name = !text.is_empty()
            && text.len() <= INTERFACE_LENGTH_MAX
            && text.chars().all(|one| one.is_ascii_graphic() && one != '/');
        if !is_name {
            return invalid(format!(
                "{field} must be the name of an interface, not `{}`",
                text.escape_debug()
            ));
        }
    }
    if request.mac.as_ref().is_some_and(|mac| mac.len() > MAC_LENGTH_MAX) {
        return invalid(format!("mac must have at most {MAC_LENGTH_MAX} bytes"));
    }
    if request.container_id.as_ref().is_some_and(|id| id.len() > CONTAINER_ID_LENGTH_MAX) {
        return invalid(format!("containerId must have at most {CONTAINER_ID_LENGTH_MAX} bytes"));
    }
    if request.fault.as_ref().is_some_and(|fault| fault.message.len() > FAULT_MESSAGE_LENGTH_MAX) {
        return invalid(format!("fault.message must have at most {FAULT_MESSAGE_LENGTH_MAX} bytes"));
    }
    let families: BTreeSet<_> = request.addresses.iter().map(|address| IpFamily::of(*address)).collect();
    if !(1..=ATTACHMENT_ADDRESSES_MAX).contains(&request.addresses.len())
        || families.len() != request.addresses.len()
    {
        return invalid("addresses must have one address, or one of each IP family".to_owned());
    }
    let mut found: Vec<Violation> = Vec::new();
    check_labels("/labels", &request.labels, &mut found);
    match found.first() {
        Some(violation) => invalid(format!("{} {}", violation.pointer, violation.message)),
        None => Ok(()),
    }
}

fn check_address(
    snapshot: &Snapshot,
    node: &Name,
    request: &AttachmentRequest,
    address: IpAddr,
) -> Result<(), AttachmentRefusal> {
    if let Some(why) = forbidden(address) {
        return Err(refusal(RefusedAttachment::Invalid, format!("{address} is {why}")));
    }
    match (request.kind, &request.network) {
        (AttachmentKind::Host, None) if !request.declared => {
            let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
            let of_node = snapshot.get(&key).and_then(|object| object.as_node());
            if of_node.is_some_and(|spec| spec.addresses.contains(&address)) {
                return Ok(());
            }
            let message = format!("{address} is no address of Node {node}");
            Err(refusal(RefusedAttachment::OutsideOfBlocks, message))
        }
        (kind, Some(network)) if kind != AttachmentKind::Host || request.declared => {
            let block = snapshot.block_with(address);
            let is_own =
                block.is_some_and(|one| one.is_held() && one.node == *node && one.network == *network);
            if is_own {
                return Ok(());
            }
            let message =
                format!("{address} lies in no block of WorkloadNetwork {network} that Node {node} has");
            Err(refusal(RefusedAttachment::OutsideOfBlocks, message))
        }
        (AttachmentKind::Veth | AttachmentKind::Tap | AttachmentKind::Host, Some(_)) => Err(refusal(
            RefusedAttachment::Invalid,
            "an Attachment of kind Host has no network unless it is declared",
        )),
        (AttachmentKind::Veth | AttachmentKind::Tap | AttachmentKind::Host, None) => {
            let message = "network must be present for kinds Veth and Tap, and for declared interfaces";
            Err(refusal(RefusedAttachment::Invalid, message))
        }
    }
}

/// Returns the entries of a report that are not recorded in a state, each with the reason.
#[must_use]
pub fn refused_attachments(
    snapshot: &Snapshot,
    quotas: &Quotas,
    node: &Name,
    changes: &AttachmentChanges,
) -> BTreeMap<Label, AttachmentRefusal> {
    let refusals = changes.attachments.iter().filter_map(|(id, request)| {
        let refusal = decide(snapshot, quotas, node, id, request).err()?;
        Some((id.clone(), refusal))
    });
    refusals.collect()
}
