//! Types that exist only for their schemas in the OpenAPI document, such as the envelopes of objects and
//! lists. The server creates no values of these types.

use model::{
    bgp::listing::{BgpEvent, BgpRouteItem, BgpSessionItem},
    cluster::{
        change::{Action, ChangeKind},
        compiled::CompiledService,
        history::{FieldChange, Origin},
    },
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, advertisement::AdvertisementSpec,
        attachment::AttachmentSpec, bfd_profile::BfdProfileSpec, bgp_peer::BgpPeerSpec, block::BlockSpec,
        certificate::CertificateSpec, dns_zone::DnsZoneSpec, endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec, gateway::GatewaySpec, http_route::HttpRouteSpec, metadata::Metadata,
        network_policy::NetworkPolicySpec, node::NodeSpec, resource::Kind, service::ServiceSpec,
        tls_route::TlsRouteSpec, workload::WorkloadSpec, workload_network::WorkloadNetworkSpec,
    },
    observed::{
        announcements::AddressEvent,
        network_status::{AttachmentStatus, BlockStatus, WorkloadNetworkStatus},
        policy_status::NetworkPolicyStatus,
        status::{
            AddressPoolStatus, AddressStatus, AdvertisementStatus, BfdProfileStatus, BgpPeerStatus,
            CertificateStatus, DnsZoneStatus, EndpointSetStatus, GatewayStatus, HttpRouteStatus, NodeStatus,
            ServiceStatus, TlsRouteStatus, WorkloadStatus,
        },
    },
    primitives::quantity::{Position, Revision, Timestamp},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::write::audit::AuditEntry;

/// Metadata of a list of objects.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    /// Revision of the state that the list shows.
    #[schema(pattern = "^[0-9]+$")]
    resource_version: String,
    /// Position of the state, for use as `resume` of `/v1/watch`.
    position: Position,
    /// Token of the next page, for the parameter `continue`. Absent on the last page.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    /// Number of objects after this page. Absent if it is not known.
    remaining_item_count: Option<u64>,
}

macro_rules! envelopes {
    ($($object:ident, $kind:literal, $list:ident, $spec:ty, $status:ty, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $object {
            /// API version of the object, `tidegate/v1`. Optional on input.
            #[schema(required = false, pattern = "^tidegate/v1$", example = "tidegate/v1")]
            api_version: String,
            /// Kind of the object, such as `Service`. Optional in requests to a path for one kind.
            #[schema(required = false, pattern = $kind)]
            kind: String,
            /// Name, labels and other metadata of the object.
            metadata: Metadata,
            /// Desired state of the object, set by clients.
            spec: $spec,
            /// Observed state of the object: conditions and values reported by nodes. Read-only; ignored on input.
            #[schema(read_only)]
            status: Option<$status>,
        }

        /// One page of a list of objects of one kind.
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $list {
            /// API version of the list, `tidegate/v1`.
            api_version: String,
            /// Kind of the list, such as `ServiceList`.
            kind: String,
            /// Metadata of the list.
            metadata: ListMetadata,
            /// Objects, ordered by namespace and name.
            items: Vec<$object>,
        }
    )*};
}

envelopes! {
    Service, "^Service$", ServiceList, ServiceSpec, ServiceStatus,
        "Service: stable virtual addresses in front of endpoints.";
    EndpointSet, "^EndpointSet$", EndpointSetList, EndpointSetSpec, EndpointSetStatus,
        "EndpointSet: endpoints of one Service, given by users or adapters.";
    Workload, "^Workload$", WorkloadList, WorkloadSpec, WorkloadStatus,
        "Workload: an addressable instance, such as a container, VM or process.";
    Node, "^Node$", NodeList, NodeSpec, NodeStatus,
        "Node: a machine with an agent.";
    AddressPool, "^AddressPool$", AddressPoolList, AddressPoolSpec, AddressPoolStatus,
        "AddressPool: addresses that are assigned to Services of type LoadBalancer.";
    BfdProfile, "^BfdProfile$", BfdProfileList, BfdProfileSpec, BfdProfileStatus,
        "BfdProfile: parameters of BFD sessions with routers.";
    BgpPeer, "^BgpPeer$", BgpPeerList, BgpPeerSpec, BgpPeerStatus,
        "BgpPeer: a router that nodes have BGP sessions with.";
    Advertisement, "^Advertisement$", AdvertisementList, AdvertisementSpec, AdvertisementStatus,
        "Advertisement: assignment of address pools to announcing nodes and protocols.";
    DnsZone, "^DnsZone$", DnsZoneList, DnsZoneSpec, DnsZoneStatus,
        "DnsZone: a zone of the DNS with static records and host names of Services.";
    Certificate, "^Certificate$", CertificateList, CertificateSpec, CertificateStatus,
        "Certificate: certificate chain with its private key for listeners of Gateways.";
    Gateway, "^Gateway$", GatewayList, GatewaySpec, GatewayStatus,
        "Gateway: listeners at which gateways accept HTTP requests and TLS connections.";
    HttpRoute, "^HttpRoute$", HttpRouteList, HttpRouteSpec, HttpRouteStatus,
        "HttpRoute: rules that select a Service for HTTP requests.";
    TlsRoute, "^TlsRoute$", TlsRouteList, TlsRouteSpec, TlsRouteStatus,
        "TlsRoute: Services for TLS connections by their server name.";
    WorkloadNetwork, "^WorkloadNetwork$", WorkloadNetworkList, WorkloadNetworkSpec, WorkloadNetworkStatus,
        "WorkloadNetwork: addresses for workloads, divided into blocks that Nodes get.";
    NetworkPolicy, "^NetworkPolicy$", NetworkPolicyList, NetworkPolicySpec, NetworkPolicyStatus,
        "NetworkPolicy: connections that selected Workloads accept and make.";
    Block, "^Block$", BlockList, BlockSpec, BlockStatus,
        "Block: part of a WorkloadNetwork whose addresses one Node assigns, maintained by the server.";
    Attachment, "^Attachment$", AttachmentList, AttachmentSpec, AttachmentStatus,
        "Attachment: interface by which a Node connects a workload to the network, maintained by the server.";
    Address, "^Address$", AddressList, AddressSpec, AddressStatus,
        "Address: record of a load balancer address, maintained by the server.";
}

/// Object that lists the endpoints of a Service that are unhealthy or in slow start, written by the server.
/// Has the name of the Service; does not exist if the Service has no such endpoints.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointHealth {
    /// API version of the object, `tidegate/v1`. Optional on input.
    #[schema(required = false, pattern = "^tidegate/v1$", example = "tidegate/v1")]
    api_version: String,
    /// Kind of the object, `EndpointHealth`.
    #[schema(required = false, pattern = "^EndpointHealth$")]
    kind: String,
    /// Name, labels and other metadata of the object.
    metadata: Metadata,
    /// Decisions of the server about unhealthy endpoints.
    spec: EndpointHealthSpec,
}

/// One page of a list of EndpointHealth objects.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointHealthList {
    /// API version of the list, `tidegate/v1`.
    api_version: String,
    /// Kind of the list, `EndpointHealthList`.
    kind: String,
    /// Metadata of the list.
    metadata: ListMetadata,
    /// Objects, ordered by namespace and name.
    items: Vec<EndpointHealth>,
}

/// One page of a list of Services with their computed endpoints.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointsList {
    /// API version of the list, `tidegate/v1`.
    api_version: String,
    /// Kind of the list, `EndpointsList`.
    kind: String,
    /// Metadata of the list.
    metadata: ListMetadata,
    /// Services with their computed endpoints, ordered by namespace and name.
    items: Vec<CompiledService>,
}

/// Metadata of a list of live data, which has no revision.
#[derive(Serialize, ToSchema)]
pub(crate) struct MomentMetadata {
    /// Token of the next page, for the parameter `continue`. Absent on the last page.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

macro_rules! moments {
    ($($list:ident, $item:ty, $order:literal;)*) => {$(
        /// One page of a list of live data, such as BGP sessions.
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $list {
            /// API version of the list, `tidegate/v1`.
            api_version: String,
            /// Kind of the list, such as `BgpSessionList`.
            kind: String,
            /// Metadata of the list.
            metadata: MomentMetadata,
            #[doc = $order]
            items: Vec<$item>,
        }
    )*};
}

moments! {
    BgpSessionList, BgpSessionItem, "Sessions, ordered by node, peer and address.";
    BgpRouteList, BgpRouteItem, "Routes of nodes, ordered by node and prefix.";
    BgpEventList, BgpEvent, "Events, from newest to oldest.";
    AddressEventList, AddressEvent, "Events, from newest to oldest.";
    AuditList, AuditEntry, "Audit entries, from newest to oldest.";
}

/// Object of any kind of this API.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Object {
    /// Object of kind Service.
    Service(Box<Service>),
    /// Object of kind EndpointSet.
    EndpointSet(Box<EndpointSet>),
    /// Object of kind Workload.
    Workload(Box<Workload>),
    /// Object of kind Node.
    Node(Box<Node>),
    /// Object of kind AddressPool.
    AddressPool(Box<AddressPool>),
    /// Object of kind BfdProfile.
    BfdProfile(Box<BfdProfile>),
    /// Object of kind BgpPeer.
    BgpPeer(Box<BgpPeer>),
    /// Object of kind Advertisement.
    Advertisement(Box<Advertisement>),
    /// Object of kind DnsZone.
    DnsZone(Box<DnsZone>),
    /// Object of kind Certificate.
    Certificate(Box<Certificate>),
    /// Object of kind Gateway.
    Gateway(Box<Gateway>),
    /// Object of kind HttpRoute.
    HttpRoute(Box<HttpRoute>),
    /// Object of kind TlsRoute.
    TlsRoute(Box<TlsRoute>),
    /// Object of kind WorkloadNetwork.
    WorkloadNetwork(Box<WorkloadNetwork>),
    /// Object of kind NetworkPolicy.
    NetworkPolicy(Box<NetworkPolicy>),
    /// Object of kind Address. Rejected on input, because only the server writes this kind.
    Address(Box<Address>),
    /// Object of kind EndpointHealth. Rejected on input, because only the server writes this kind.
    EndpointHealth(Box<EndpointHealth>),
    /// Object of kind Block. Rejected on input, because only the server writes this kind.
    Block(Box<Block>),
    /// Object of kind Attachment. Rejected on input, because only the server writes this kind.
    Attachment(Box<Attachment>),
}

/// List of objects of any kinds, in the format of `kubectl get -o json`.
#[derive(Serialize, ToSchema)]
pub(crate) struct ObjectList {
    /// Kind of the list, always `List`.
    #[schema(pattern = "^List$")]
    kind: String,
    /// Objects of the list, of any kinds.
    items: Vec<Object>,
}

/// One object, an array of objects, or a `List`. YAML bodies may also contain several documents.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ApplyBody {
    /// One object of any kind.
    One(Box<Object>),
    /// Array of objects of any kinds.
    Many(Vec<Object>),
    /// List of objects in the format of `kubectl get -o json`.
    List(ObjectList),
}

/// References to the objects of a request to delete many.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum DeleteBody {
    /// Array of references to objects of any kinds.
    Many(Vec<ObjectName>),
    /// List of references to objects of any kinds.
    List(ReferenceList),
}

/// List of references to objects.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReferenceList {
    /// Kind of the list, always `List`.
    #[schema(pattern = "^List$")]
    kind: String,
    /// References to objects of any kinds.
    items: Vec<ObjectName>,
}

/// JSON merge patch (RFC 7396): fields to change; `null` removes a field.
#[derive(Serialize, ToSchema)]
pub(crate) struct MergePatch {
    /// Labels and annotations to change; `null` removes a label or annotation.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    metadata: Option<serde_json::Value>,
    /// Fields of the desired state to change; `null` removes a field.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    spec: Option<serde_json::Value>,
}

/// Result of an `apply` request.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApplyAnswer {
    /// Position of the state that includes the write.
    position: Position,
    /// Revision of the state that includes the write.
    revision: Revision,
    /// True for a dry run, which changed nothing.
    dry_run: bool,
    /// Results in the order of the request, followed by pruned objects.
    results: Vec<ApplyResult>,
}

/// Result of an `apply` request for one object.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApplyResult {
    /// Performed action: `created`, `updated`, `unchanged`, `deleted` or `pruned`.
    action: Action,
    /// Object after the write. If it was deleted, its last state.
    object: Object,
}

/// Kind, namespace and name of an object.
#[derive(Serialize, ToSchema)]
pub(crate) struct ObjectName {
    /// Kind of the object, such as `Service`.
    kind: Kind,
    /// Namespace of the object. Absent for cluster-scoped kinds.
    namespace: Option<String>,
    /// Name of the object.
    name: String,
}

/// Object that a write changed.
#[derive(Serialize, ToSchema)]
pub(crate) struct HistoryChange {
    /// Type of the change of the object.
    kind: ChangeKind,
    /// Kind, namespace and name of the object.
    object: ObjectName,
}

/// Accepted write with its author and its changed objects.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryItem {
    /// Revision created by the write.
    revision: Revision,
    /// Time of the write (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Author and reason of the write.
    #[serde(flatten)]
    origin: Origin,
    /// Changed objects, at most the first 100.
    changes: Vec<HistoryChange>,
    /// Total number of changed objects.
    changes_total: u64,
}

/// Metadata of a list of writes.
#[derive(Serialize, ToSchema)]
pub(crate) struct HistoryMetadata {
    /// Token of the next page, for the parameter `continue`. Absent on the last page.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    /// Oldest revision that a rollback can target. The history may lack writes up to this revision.
    floor: Revision,
}

/// One page of the history.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryList {
    /// API version of the list, `tidegate/v1`.
    api_version: String,
    /// Kind of the list, `HistoryList`.
    kind: String,
    /// Metadata of the list.
    metadata: HistoryMetadata,
    /// Writes, from newest to oldest.
    items: Vec<HistoryItem>,
}

/// Object that a write changed, with its states before and after.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryObject {
    /// Type of the change of the object.
    kind: ChangeKind,
    /// Kind, namespace and name of the object.
    object: ObjectName,
    /// Object before the write. Absent if the write created it.
    before: Option<Box<Object>>,
    /// Object after the write. Absent if the write deleted it.
    after: Option<Box<Object>>,
    /// Changed fields of the object. Secrets are never included.
    fields: Vec<FieldChange>,
    /// Number of changed fields not listed in `fields`.
    fields_omitted: u64,
}

/// Accepted write with all changed objects.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryEntry {
    /// Fields of the write as in the history listing.
    #[serde(flatten)]
    item: HistoryItem,
    /// Changed objects with their states before and after.
    objects: Vec<HistoryObject>,
}
