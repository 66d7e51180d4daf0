//! The published shapes that exist only in JSON: envelopes of objects and lists. Used by the OpenAPI document alone.

use model::{
    bgp::listing::{BgpEvent, BgpRouteItem, BgpSessionItem},
    cluster::{
        change::{Action, ChangeKind},
        compiled::CompiledService,
        history::{FieldChange, Origin},
    },
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, advertisement::AdvertisementSpec,
        bfd_profile::BfdProfileSpec, bgp_peer::BgpPeerSpec, endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec, metadata::Metadata, node::NodeSpec, resource::Kind,
        service::ServiceSpec, workload::WorkloadSpec,
    },
    observed::status::{
        AddressPoolStatus, AddressStatus, AdvertisementStatus, BfdProfileStatus, BgpPeerStatus,
        EndpointSetStatus, NodeStatus, ServiceStatus, WorkloadStatus,
    },
    primitives::quantity::{Position, Revision, Timestamp},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::write::audit::AuditEntry;

/// What is said about a listing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    /// The revision of the state that the listing shows.
    #[schema(pattern = "^[0-9]+$")]
    resource_version: String,
    /// The same as a resume token for `/v1/watch`.
    position: Position,
    /// The token of the next page, if there is one.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    /// How many objects follow, if that is known.
    remaining_item_count: Option<u64>,
}

macro_rules! envelopes {
    ($($object:ident, $kind:literal, $list:ident, $spec:ty, $status:ty, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $object {
            /// The version of the API; may be left out on input.
            #[schema(required = false, pattern = "^tidegate/v1$", example = "tidegate/v1")]
            api_version: String,
            /// The kind; may be left out on input on paths of one kind.
            #[schema(required = false, pattern = $kind)]
            kind: String,
            /// Who it is.
            metadata: Metadata,
            /// What it should be.
            spec: $spec,
            /// What was observed of it; read-only.
            #[schema(read_only)]
            status: Option<$status>,
        }

        /// A page of a listing.
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $list {
            /// The version of the API.
            api_version: String,
            /// The kind of the list.
            kind: String,
            /// What the listing shows.
            metadata: ListMetadata,
            /// The objects in the order of namespace and name.
            items: Vec<$object>,
        }
    )*};
}

envelopes! {
    Service, "^Service$", ServiceList, ServiceSpec, ServiceStatus, "Stable virtual addresses in front of \
                                                                    endpoints.";
    EndpointSet, "^EndpointSet$", EndpointSetList, EndpointSetSpec, EndpointSetStatus, "Endpoints of one Service, given by hand.";
    Workload, "^Workload$", WorkloadList, WorkloadSpec, WorkloadStatus, "Anything with an address.";
    Node, "^Node$", NodeList, NodeSpec, NodeStatus, "Machines with an agent.";
    AddressPool, "^AddressPool$", AddressPoolList, AddressPoolSpec, AddressPoolStatus, "Load balancer addresses that may be given out.";
    BfdProfile, "^BfdProfile$", BfdProfileList, BfdProfileSpec, BfdProfileStatus, "How paths to routers are watched by BFD.";
    BgpPeer, "^BgpPeer$", BgpPeerList, BgpPeerSpec, BgpPeerStatus, "A router that nodes have BGP sessions with.";
    Advertisement, "^Advertisement$", AdvertisementList, AdvertisementSpec, AdvertisementStatus, "Which nodes announce which pools' addresses.";
    Address, "^Address$", AddressList, AddressSpec, AddressStatus, "The record of a load balancer address, kept by the server.";
}

/// The record of what health checks have taken out of a Service, kept by the server. It has the name of the Service; there is
/// none while everything is in service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointHealth {
    /// The version of the API.
    #[schema(required = false, pattern = "^tidegate/v1$", example = "tidegate/v1")]
    api_version: String,
    /// The kind.
    #[schema(required = false, pattern = "^EndpointHealth$")]
    kind: String,
    /// Who it is.
    metadata: Metadata,
    /// What was decided.
    spec: EndpointHealthSpec,
}

/// A page of a listing.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointHealthList {
    /// The version of the API.
    api_version: String,
    /// The kind of the list.
    kind: String,
    /// What the listing shows.
    metadata: ListMetadata,
    /// The objects in the order of namespace and name.
    items: Vec<EndpointHealth>,
}

/// A page of compiled Services.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointsList {
    /// The version of the API.
    api_version: String,
    /// `EndpointsList`.
    kind: String,
    /// What the listing shows.
    metadata: ListMetadata,
    /// The compiled Services in the order of namespace and name.
    items: Vec<CompiledService>,
}

/// What is said about a listing of the moment.
#[derive(Serialize, ToSchema)]
pub(crate) struct MomentMetadata {
    /// The token of the next page, if there is one.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

macro_rules! moments {
    ($($list:ident, $item:ty, $order:literal;)*) => {$(
        /// A page of a listing of the moment.
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $list {
            /// The version of the API.
            api_version: String,
            /// The kind of the list.
            kind: String,
            /// What is said about the listing.
            metadata: MomentMetadata,
            #[doc = $order]
            items: Vec<$item>,
        }
    )*};
}

moments! {
    BgpSessionList, BgpSessionItem, "The sessions in the order of nodes, peers and addresses.";
    BgpRouteList, BgpRouteItem, "The routes in the order of nodes and prefixes.";
    BgpEventList, BgpEvent, "The events, the newest first.";
    AuditList, AuditEntry, "The requests, the newest first.";
}

/// An object of any kind.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Object {
    /// A Service.
    Service(Box<Service>),
    /// An EndpointSet.
    EndpointSet(Box<EndpointSet>),
    /// A Workload.
    Workload(Box<Workload>),
    /// A Node.
    Node(Box<Node>),
    /// An AddressPool.
    AddressPool(Box<AddressPool>),
    /// A BfdProfile.
    BfdProfile(Box<BfdProfile>),
    /// A BgpPeer.
    BgpPeer(Box<BgpPeer>),
    /// An Advertisement.
    Advertisement(Box<Advertisement>),
    /// An Address; on input refused.
    Address(Box<Address>),
    /// An EndpointHealth; on input refused.
    EndpointHealth(Box<EndpointHealth>),
}

/// A list of objects of any kinds, as `kubectl get -o json` writes it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ObjectList {
    /// `List`.
    #[schema(pattern = "^List$")]
    kind: String,
    /// The objects.
    items: Vec<Object>,
}

/// One object, several, or a list of them. In YAML also as documents.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ApplyBody {
    /// One object.
    One(Box<Object>),
    /// Several.
    Many(Vec<Object>),
    /// A list.
    List(ObjectList),
}

/// A merge patch (RFC 7396): the fields to change, `null` to remove one.
#[derive(Serialize, ToSchema)]
pub(crate) struct MergePatch {
    /// Labels and annotations.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    metadata: Option<serde_json::Value>,
    /// Intent.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    spec: Option<serde_json::Value>,
}

/// What an apply did.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApplyAnswer {
    /// The position of the state that holds it.
    position: Position,
    /// The revision of that state.
    revision: Revision,
    /// Whether it was only tried.
    dry_run: bool,
    /// What happened to each object, in the order of the input, then to each object pruned.
    results: Vec<ApplyResult>,
}

/// What happened to one object.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApplyResult {
    /// The verb.
    action: Action,
    /// The object after; of a removal, its last state.
    object: Object,
}

/// An object by its name.
#[derive(Serialize, ToSchema)]
pub(crate) struct ObjectName {
    /// The kind.
    kind: Kind,
    /// The namespace, on namespaced kinds.
    namespace: Option<String>,
    /// The name.
    name: String,
}

/// How an object was changed.
#[derive(Serialize, ToSchema)]
pub(crate) struct HistoryChange {
    /// How.
    kind: ChangeKind,
    /// Which.
    object: ObjectName,
}

/// An accepted write.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryItem {
    /// The revision that it made.
    revision: Revision,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who asked, and why.
    #[serde(flatten)]
    origin: Origin,
    /// What it changed; the first hundred.
    changes: Vec<HistoryChange>,
    /// How many objects it changed.
    changes_total: u64,
}

/// What is said about a listing of the history.
#[derive(Serialize, ToSchema)]
pub(crate) struct HistoryMetadata {
    /// The token of the next page, if there is one.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    /// Writes up to this revision may be missing, and nothing can be rolled back to a state before it.
    floor: Revision,
}

/// A page of the history.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryList {
    /// The version of the API.
    api_version: String,
    /// The kind of the list.
    kind: String,
    /// What is said about the listing.
    metadata: HistoryMetadata,
    /// The writes, the newest first.
    items: Vec<HistoryItem>,
}

/// An object of a write.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryObject {
    /// How it changed.
    kind: ChangeKind,
    /// Which.
    object: ObjectName,
    /// As it was; left out when it is new.
    before: Option<Box<Object>>,
    /// As it is from then on; left out when it is gone.
    after: Option<Box<Object>>,
    /// The fields that differ.
    fields: Vec<FieldChange>,
    /// Differing fields beyond those listed.
    fields_omitted: u64,
}

/// A write with all that it changed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryEntry {
    /// What listings show.
    #[serde(flatten)]
    item: HistoryItem,
    /// The objects before and after.
    objects: Vec<HistoryObject>,
}

/// When a node had a write.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeConvergence {
    /// The node.
    node: String,
    /// Milliseconds from the commit until it said that it has received it; left out while it has not.
    received_ms: Option<u64>,
    /// The same of its kernel: until it said that it has applied it.
    applied_ms: Option<u64>,
    /// The same until it said that it has it verified.
    verified_ms: Option<u64>,
    /// Why it has not.
    why: Option<String>,
}

/// When the nodes had a write.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConvergenceAnswer {
    /// The revision that it made.
    revision: Revision,
    /// Whether nodes have anything to do for it.
    concerns_nodes: bool,
    /// Milliseconds since the commit.
    age_ms: u64,
    /// Nodes that have it verified.
    verified: u64,
    /// Nodes that should.
    total: u64,
    /// The time within which half of those that have it had it, in milliseconds.
    #[serde(rename = "p50Ms")]
    p50_ms: Option<u64>,
    /// The same for 99 of 100.
    #[serde(rename = "p99Ms")]
    p99_ms: Option<u64>,
    /// The same for all.
    max_ms: Option<u64>,
    /// The nodes; those that lack it first, then the slowest.
    nodes: Vec<NodeConvergence>,
}
