//! Reasons of conditions: the closed list of machine-readable identifiers, each with its meaning and remedy.
//!
//! The doc comment of a variant is its meaning, and its `message` its remedy. The reference page is generated from both.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// Remedy of a reason that describes a healthy state.
const NO_ACTION: &str = "No action is required.";

/// Machine-readable reason for the status of a condition, or of a BGP session that is not established.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
)]
pub enum ConditionReason {
    /// The object is valid, and all its settings are implemented.
    Valid,
    /// The object has settings that are not implemented.
    #[strum(message = "Remove the settings that the message lists. A Service is not programmed with them.")]
    Unsupported,
    /// The object is disabled (`spec.disabled`).
    #[strum(message = "Set `spec.disabled` to false.")]
    Disabled,

    /// The Service is of type ExternalName: it has no addresses and uses no endpoints.
    #[strum(
        message = "No action is required for the Service. Change its type, or delete an EndpointSet for it."
    )]
    ExternalName,
    /// The Service is headless (`clusterIP: None`) and has no virtual address.
    Headless,
    /// The Service has the addresses that its spec requests.
    Allocated,
    /// The Service has exactly the load balancer addresses that its spec requests.
    AsRequested,
    /// A load balancer address is free and will be assigned shortly.
    #[strum(message = "Wait: Services without an address are served in turn.")]
    Waiting,
    /// All addresses without a Service are in quarantine after their release by another Service.
    #[strum(
        message = "Wait for the end of the quarantine (`spec.quarantineSeconds` of the pool), or add a range to \
                       the pool."
    )]
    WaitingForQuarantine,
    /// The pool that would provide the address is disabled.
    #[strum(message = "Set `spec.disabled` of the AddressPool to false, or name another pool.")]
    PoolDisabled,
    /// The requested load balancer address cannot be assigned to the Service.
    #[strum(
        message = "Request an address that is free, inside a pool and allowed for the Service, or request none."
    )]
    AddressNotAvailable,
    /// No AddressPool exists.
    #[strum(
        message = "Create an AddressPool. Until then the Service is reachable at its cluster IP and node ports."
    )]
    NoPools,
    /// The AddressPool that the Service names does not exist.
    #[strum(message = "Create the AddressPool, or name another one in `spec.loadBalancer.pool`.")]
    PoolNotFound,
    /// No AddressPool is allowed to provide addresses to the Service.
    #[strum(message = "Name a pool in `spec.loadBalancer.pool`, or change `autoAssign`, `namespaces` or \
                       `serviceSelectors` of a pool.")]
    NoPoolMatches,
    /// No matching AddressPool has addresses of the required IP family.
    #[strum(
        message = "Add a range of the IP family to the pool, or change `spec.ipFamilies` of the Service."
    )]
    NoPoolOfFamily,
    /// All addresses of the matching AddressPools are assigned.
    #[strum(message = "Add a range to the pool, or delete Services that are no longer needed.")]
    PoolFull,

    /// At least one endpoint accepts connections.
    EndpointsReady,
    /// All endpoints are draining or in maintenance.
    #[strum(message = "End the drain or maintenance with `tidegate undrain`.")]
    OutOfService,
    /// Endpoints are ready, but all of them have weight 0.
    #[strum(message = "Set the weight of an endpoint above 0, or end its drain.")]
    NoWeight,
    /// Endpoints exist, but none is ready.
    #[strum(
        message = "Examine the workloads behind the endpoints. Terminating endpoints that still serve are used \
                       until then."
    )]
    NoReadyEndpoints,
    /// The Service, or the EndpointSet, has no endpoints.
    #[strum(
        message = "Set a selector that matches Workloads, or add endpoints to an EndpointSet of the Service."
    )]
    NoEndpoints,
    /// The selector matches no Workload with a usable port.
    #[strum(
        message = "Compare the selector with the labels, phases and named ports of the Workloads in the namespace."
    )]
    NoWorkloadMatches,
    /// Health checks have removed all endpoints from service.
    #[strum(message = "Examine the endpoints; `tidegate health` shows the last result of each node.")]
    NoHealthyEndpoints,
    /// Unhealthy endpoints remain in use, because too many endpoints became unhealthy at once.
    #[strum(
        message = "If the failures are real, remove the endpoints from service with `tidegate health --confirm`."
    )]
    HealthGuardHeld,
    /// Unhealthy endpoints, on a lost Node or checked by default, stay in use, because no endpoint of the port is healthy.
    #[strum(
        message = "Start the endpoints. If the Node is lost, restore its `tidegate-agent`, or start the workloads elsewhere."
    )]
    LastEndpointsKept,
    /// All endpoints of a port are used: the healthy share is below `spec.healthCheck.panicThreshold`.
    #[strum(
        message = "Examine the unhealthy endpoints; `tidegate health` shows the last result of each node."
    )]
    PanicThreshold,

    /// The Service requires no packet rules.
    NothingToProgram,
    /// No Node exists, or no agent has reported for one.
    #[strum(message = "Start `tidegate-agent` on a machine.")]
    NoNodes,
    /// All Nodes have programmed the Service and verified it by reading the kernel.
    VerifiedOnAllNodes,
    /// Nodes have not verified the newest revision yet.
    #[strum(
        message = "Wait a moment. If the state persists, examine the agents of the Nodes that are behind."
    )]
    CatchingUp,
    /// The proxy mode of some Nodes does not implement a setting of the Service.
    #[strum(
        message = "Change the setting, or select a proxy mode for these Nodes that implements it (`spec.mode`)."
    )]
    UnsupportedOnNodes,
    /// Programming the Service failed on some Nodes.
    #[strum(
        message = "Follow the error in the message; `tidegate describe node` lists the failures of a Node."
    )]
    FailedOnNodes,

    /// The Service has no address that requires an announcement.
    NothingToAnnounce,
    /// The address is announced.
    Announced,
    /// A Service has no address to announce, or a Workload has no address.
    #[strum(
        message = "For a Service, see its condition AddressAssigned. For a Workload, set `spec.addresses`."
    )]
    NoAddress,
    /// No node announces the load balancer address.
    #[strum(
        message = "Create an Advertisement that covers the address, or route it to the Nodes by other means."
    )]
    NoAnnouncer,
    /// The node that announced the address has stopped reporting.
    #[strum(
        message = "Examine the agent of that node. Other candidates take over without control, and routers drop \
                       its BGP routes."
    )]
    OwnerSilent,
    /// The address is released and reserved for its former Service.
    #[strum(message = "No action is required. The record is deleted at the end of the quarantine.")]
    InQuarantine,
    /// Nodes should announce the address, but no report confirms the announcement yet.
    #[strum(message = "Wait a moment. If the state persists, examine the agent of the node in the message.")]
    NotYetAnnounced,
    /// Another machine announces the same address.
    #[strum(
        message = "Remove the address from the machine with that link-layer address, or reserve it in the pool."
    )]
    Conflict,
    /// Two nodes announce the same address, and receive the announcements of each other.
    #[strum(
        message = "Wait a moment: the node of lower rank yields. If the state persists, the nodes follow different \
                       candidate orders: check that both reach control."
    )]
    TwoOwners,
    /// No Advertisement covers the address or the AddressPool.
    #[strum(
        message = "Create an Advertisement that covers it. If another system routes the addresses to the Nodes, set \
                       `spec.routedExternally` of the AddressPool."
    )]
    NoAdvertisement,
    /// Another system routes the address to the nodes, as `routedExternally` or `--allow-external-ip` states.
    RoutedExternally,
    /// No network of a Node contains the address or the range.
    #[strum(
        message = "Choose ranges inside a network of the Nodes, or give a Node an interface in that network. ARP \
                       and NDP announce no other addresses."
    )]
    NoNodeInSubnet,
    /// No node is able to announce the address at present.
    #[strum(message = "Remove one of the obstacles that the message lists.")]
    NoCandidate,
    /// Nodes withhold the BGP announcement of the address.
    #[strum(message = "Remove the obstacle in the message; the announcement follows without further action.")]
    Withheld,
    /// No BGP session exists that could carry the announcement, or nodes have not reported a session of the peer.
    #[strum(
        message = "Create a BgpPeer whose `nodeSelectors` match the Nodes, and check that their agents report."
    )]
    NoSession,
    /// Nodes report more BGP routes than the control server can store, so the state of the address is unknown.
    #[strum(
        message = "Examine a router. Fewer announcing nodes or larger aggregates reduce the number of routes."
    )]
    TooManyRoutes,
    /// An Advertisement covers the AddressPool, and nodes are able to announce its addresses.
    Announceable,
    /// No Node has labels that match `spec.nodeSelectors`.
    #[strum(message = "Compare `spec.nodeSelectors` with the labels of the Nodes (`metadata.labels`).")]
    NoMatchingNode,
    /// No selected Node has an interface that `spec.interfaces` names.
    #[strum(message = "Compare `spec.interfaces` with `status.facts` of the Nodes.")]
    NoMatchingInterface,
    /// The Advertisement selects at least one Node with a suitable interface.
    NodesFound,
    /// No BgpPeer exists.
    #[strum(message = "Create a BgpPeer for each router that shall receive the announcements.")]
    NoPeers,
    /// The BgpPeers of the Advertisement select none of the Nodes that the Advertisement selects.
    #[strum(message = "Compare `spec.nodeSelectors` of the BgpPeers, and check that they are not disabled.")]
    NoPeerOnNodes,
    /// Selected Nodes have BGP peers that receive the announcements.
    PeersFound,

    /// All other conditions of the object are true.
    Ready,
    /// The condition Accepted is not true.
    #[strum(message = "See the condition Accepted.")]
    NotAccepted,
    /// The condition AddressAssigned is not true.
    #[strum(message = "See the condition AddressAssigned.")]
    NotAddressAssigned,
    /// The condition EndpointsAvailable is not true.
    #[strum(message = "See the condition EndpointsAvailable.")]
    NotEndpointsAvailable,
    /// The condition Programmed is not true.
    #[strum(message = "See the condition Programmed.")]
    NotProgrammed,
    /// The condition Announced is not true.
    #[strum(message = "See the condition Announced.")]
    NotAnnounced,
    /// The condition Connected is not true.
    #[strum(message = "See the condition Connected.")]
    NotConnected,
    /// The condition Converged is not true.
    #[strum(message = "See the condition Converged.")]
    NotConverged,
    /// The condition Used is not true: no Node has a session with the BgpPeer.
    #[strum(message = "See the condition Used.")]
    NotUsed,

    /// The agent reports.
    Reporting,
    /// Two agents report under the name of this Node.
    #[strum(message = "Give the agent of each machine a different `--node`.")]
    TwoAgents,
    /// The agent has not reported within the lease.
    #[strum(
        message = "Check that `tidegate-agent` runs on the node and reaches the server. Its packet rules remain \
                       in force."
    )]
    AgentSilent,
    /// No agent has ever reported for this Node.
    #[strum(message = "Start `tidegate-agent` on the machine with `--node` and the name of this Node.")]
    NeverReported,
    /// The state is unknown, because no agent or gateway has reported on it since the start of the server.
    #[strum(message = "Wait some seconds. For a Node, see the condition Connected.")]
    NoReport,
    /// The node rejects a state from the control server that would remove too much.
    #[strum(message = "If the loss is intended, release the state as the hint describes.")]
    StateHeld,
    /// The node failed to program some Services.
    #[strum(message = "List them with `tidegate describe node`.")]
    ServicesFailed,
    /// The node has not programmed the routes or the tunnel of a WorkloadNetwork.
    #[strum(message = "Correct the cause that the message names; the node tries again every 5 seconds.")]
    NetworkNotProgrammed,
    /// The proxy mode in use differs from `spec.mode`.
    #[strum(message = "Wait a moment. If the state persists, the warnings of the Node name the obstacle.")]
    OtherMode,
    /// The node has programmed everything and verified it by reading the kernel.
    Verified,

    /// The Service that the EndpointSet names does not exist.
    #[strum(message = "Create the Service in the namespace of the EndpointSet, or correct `spec.service`.")]
    NoService,
    /// The Service that the EndpointSet names is disabled.
    #[strum(message = "Set `spec.disabled` of the Service to false.")]
    ServiceDisabled,
    /// Ports of the EndpointSet match no port of the Service.
    #[strum(message = "Give each port of the set the name and protocol of a port of the Service.")]
    PortsUnmatched,
    /// Endpoints have an IP family that the Service does not have.
    #[strum(message = "Compare `spec.ipFamilies` of the Service with the addresses of the set.")]
    FamilyUnmatched,
    /// The Service exists and uses the endpoints.
    ServiceFound,
    /// No Service of the namespace selects the Workload.
    #[strum(
        message = "If the Workload should be an endpoint, compare its labels with the selector of the Service."
    )]
    NotSelected,
    /// The phase of the Workload excludes it from Services.
    #[strum(message = "Set `spec.phase` to Running when the Workload accepts connections.")]
    NotRunning,
    /// The agent of the Workload's Node is silent, and other nodes find the Workload unhealthy.
    #[strum(
        message = "Examine the machine. The Workload is an endpoint again when it answers or its agent reports."
    )]
    NodeLost,
    /// The Workload has none of the ports that the Services name as `targetPort`.
    #[strum(message = "Add the ports to `spec.ports` with their protocol.")]
    NoPort,
    /// At least one Service selects the Workload.
    Selected,
    /// Two BgpPeers lead from one Node to the same router; only the first of them has a session on this Node.
    #[strum(message = "Distinguish them by `spec.nodeSelectors`, or delete one of them.")]
    SameRouter,
    /// The BgpPeer selects at least one Node.
    NodesSelected,
    /// No BgpPeer names the BfdProfile.
    #[strum(message = "Name it in `spec.bfdProfile` of a BgpPeer.")]
    NotNamed,
    /// At least one BgpPeer names the BfdProfile.
    Named,

    /// The DNS server answers all host names of the Service with an address.
    NamesAnswered,
    /// No DnsZone contains a host name of the Service.
    #[strum(message = "Create a DnsZone that contains the name, or correct `spec.hostnames`.")]
    NoDnsZone,
    /// The DnsZone does not allow host names of the namespace.
    #[strum(message = "Add the namespace to `spec.allowedNamespaces` of the DnsZone.")]
    NamespaceNotAllowed,
    /// The DnsZone has a static address or alias with a host name of the Service.
    #[strum(message = "Choose another name, or remove the record from `spec.records` of the DnsZone.")]
    NameReserved,
    /// An older Service, Gateway or route has a host name of the Service.
    #[strum(message = "Choose another name, or remove it from the older object.")]
    NameTaken,
    /// No load balancer address of the Service is announced and has a usable endpoint of its IP family.
    #[strum(
        message = "See the conditions Announced and EndpointsAvailable. The names resolve again when both are met."
    )]
    NoAddressInService,
    /// The DnsZone has neither a static record nor the host name of an object.
    #[strum(message = "Add `spec.records`, or host names of a Service or route in an allowed namespace.")]
    NoNames,
    /// The DnsZone has a static record or the host name of an object.
    HasNames,

    /// No Gateway has a listener with the name and port of a parent of the route.
    #[strum(message = "Create the Gateway, or correct `spec.parentRefs`.")]
    NoMatchingParent,
    /// The listeners of a parent do not allow routes of the kind and namespace.
    #[strum(message = "Set `allowedRoutes.namespaces.from` of the listener to `All`.")]
    NotAllowedByListeners,
    /// No listener of a parent has a host name in common with the route.
    #[strum(message = "Correct `spec.hostnames`, or add a listener to the Gateway.")]
    NoMatchingListenerHostname,
    /// A backend of the route is not a TCP port of a Service.
    #[strum(
        message = "Create the Service, or correct `backendRefs`. Its share of the requests fails with 500."
    )]
    BackendNotFound,
    /// A backend of the route expects a protocol that gateways do not send.
    #[strum(
        message = "Use a Service without `spec.proxyProtocol`. Its share of the requests fails with 500."
    )]
    UnsupportedProtocol,
    /// All backends of the route are Service ports that gateways can use.
    BackendsFound,
    /// No route is attached to the Gateway.
    #[strum(message = "Name the Gateway in `spec.parentRefs` of an HttpRoute or TlsRoute.")]
    NoRoutes,
    /// A route is attached to the Gateway.
    RoutesAttached,
    /// All Certificates of the listeners exist and are usable.
    CertificatesFound,
    /// A listener names a Certificate that does not exist or is unusable.
    #[strum(
        message = "Create the Certificate, or correct `tls.certificateRefs`. Other listeners are not affected."
    )]
    InvalidCertificateRef,
    /// Gateways serve the listeners.
    Programmed,
    /// No gateway that serves the Gateway reports to the control server.
    #[strum(
        message = "Start `tidegate-gateway`. If it runs, its log names the obstacle, such as a token without the role `gateway`."
    )]
    NoGateway,
    /// A gateway does not listen at the port of a listener.
    #[strum(message = "Stop the program that uses the port, or choose another port or `--address`.")]
    NotListening,
    /// A listener with TLS has no usable Certificate, so that gateways refuse its connections.
    #[strum(message = "See the condition ResolvedRefs.")]
    Invalid,
    /// Another Gateway has a listener with another protocol at the same port, which is served instead.
    #[strum(message = "Choose another port, or give both listeners the same protocol.")]
    ProtocolConflict,

    /// The certificate is valid, and its renewal is not due.
    InValidity,
    /// The certificate expires within 14 days.
    #[strum(message = "Write a new certificate and its private key to the object.")]
    ExpiresSoon,
    /// The certificate has expired, so that clients reject it.
    #[strum(message = "Write a new certificate and its private key to the object.")]
    Expired,
    /// The validity of the certificate has not begun.
    #[strum(message = "Check the clocks of the control servers, or write another certificate.")]
    NotYetValid,
    /// The ACME server has issued the certificate for the DNS names of the Certificate.
    Issued,
    /// The control servers are ordering the certificate from the ACME server.
    #[strum(message = "Wait. An order takes seconds to minutes.")]
    OrderPending,
    /// The last order of the certificate failed, and is repeated after a pause.
    #[strum(
        message = "Correct the cause in the message. The ACME server must reach an HTTP listener of a Gateway in the \
                       namespace at port 80 of each DNS name."
    )]
    OrderFailed,
    /// No listener of a Gateway in the namespace names the Certificate.
    #[strum(message = "Name it in `tls.certificateRefs` of a listener.")]
    NotReferenced,
    /// A listener of a Gateway names the Certificate.
    Referenced,

    /// The AddressPool contains no assignable address.
    #[strum(message = "Add a range to `spec.addresses`.")]
    Empty,
    /// The AddressPool has free addresses in all its IP families.
    Free,
    /// The AddressPool has no free address in one of its IP families.
    #[strum(message = "Add a range to `spec.addresses`, or delete Services that are no longer needed.")]
    Full,

    /// A network of the WorkloadNetwork overlaps the range of virtual addresses of the control server.
    #[strum(message = "Start the control servers with another range, or change `spec.cidrs`.")]
    Overlaps,
    /// The WorkloadNetwork has free blocks in all its IP families.
    BlocksFree,
    /// The WorkloadNetwork has no free block in one of its IP families.
    #[strum(message = "Add a network to `spec.cidrs`, or choose smaller blocks in `spec.blockSize`.")]
    BlocksExhausted,
    /// The WorkloadNetwork selects no Node.
    #[strum(message = "Label Nodes, or change `spec.nodeSelectors`.")]
    NoNodesSelected,
    /// Nodes that the WorkloadNetwork selects have no block of one of its IP families.
    #[strum(message = "See the condition HasRoom.")]
    NodesWithoutBlock,
    /// All selected Nodes have blocks of the WorkloadNetwork, or a Node has the block.
    BlocksGiven,
    /// The Node assigns no further addresses of the block, which is released when no Attachment uses it.
    #[strum(message = "Wait until the workloads have ended, or let the network select the Node again.")]
    Draining,
    /// The block has been released, and no other Node gets it before the end of its cooldown.
    #[strum(message = "Wait for the end of the cooldown (`spec.cooldownSeconds` of the WorkloadNetwork).")]
    CoolingDown,
    /// The Workload of the Attachment exists and has its addresses, or its declared interface is configured.
    Attached,
    /// The Workload of the Attachment does not exist or has other addresses.
    #[strum(message = "Write the addresses of the Attachment to `spec.addresses` of the Workload.")]
    NotAttached,
    /// The agent of the Node has not configured the interface that the Workload declares yet.
    #[strum(message = "See the message. The agent must have a block and a version that receives the field.")]
    InterfacePending,
    /// The interface, or its network namespace, does not exist on the Node.
    #[strum(message = "Create it, or correct `spec.interface`. The agent configures it when it appears.")]
    InterfaceMissing,
    /// The agent does not change the interface, because the Node itself needs it or it is of another kind.
    #[strum(message = "Declare another interface, or remove its addresses and default routes from the Node.")]
    InterfaceRefused,
    /// The NetworkPolicy selects no Workload.
    #[strum(message = "Label Workloads of the namespace, or change `spec.selector`.")]
    NoWorkloadsSelected,
    /// The NetworkPolicy selects Workloads without an address of their own, which nodes cannot isolate.
    #[strum(message = "Wait for their addresses, or give them addresses that their Node does not have.")]
    WorkloadsWithoutAddress,
    /// The NetworkPolicy selects Workloads, all of which have an address of their own.
    WorkloadsSelected,
    /// All nodes with Workloads that the NetworkPolicy selects enforce it, or there are no such nodes.
    EnforcedOnAllNodes,
    /// Nodes with Workloads that the NetworkPolicy selects do not enforce it, or not for all connections.
    #[strum(
        message = "Follow the message: upgrade the agents, or use proxy mode `nftables` or `iptables` on these Nodes."
    )]
    NotEnforcedOnNodes,

    /// All expected BGP sessions are established.
    Established,
    /// A BGP session is not established, for a reason that is not classified.
    #[strum(message = "Follow the message; `tidegate bgp events` lists the changes of the session.")]
    NotEstablished,
    /// No router of the dynamic peer's network has connected yet.
    #[strum(message = "Configure the nodes as neighbors on the routers.")]
    NoNeighbour,
    /// The agent is establishing the TCP connection.
    #[strum(message = "Check that the node reaches the router, and that the router has it as a neighbor.")]
    Connecting,
    /// The TCP connection to the router failed.
    #[strum(message = "Check that the node reaches the router, and that the router has it as a neighbor.")]
    ConnectionFailed,
    /// The TCP connection exists, and the OPEN messages are being exchanged.
    #[strum(message = "Wait a moment. If the state persists, examine the log of the router.")]
    Negotiating,
    /// TCP segments with a wrong or missing MD5 signature arrive from the router (RFC 2385).
    #[strum(message = "Compare `spec.password` with the password on the router.")]
    PasswordMismatch,
    /// One side could not decode a message of the other (RFC 4271 §6.1, §6.3 and §6.6).
    #[strum(message = "Compare the BGP settings of both sides; the message names the field.")]
    ProtocolError,
    /// The AS number of the router is not `spec.peerASN`.
    #[strum(message = "Set `spec.peerASN` to the AS number of the router, or correct the router.")]
    WrongPeerAS,
    /// The router expects a different AS number of the node.
    #[strum(message = "Correct the AS number of this neighbor on the router, or set `spec.localASN`.")]
    WrongLocalAS,
    /// Both sides have the same BGP Identifier, or one side rejects the other's (RFC 4271 §6.2).
    #[strum(message = "Give the Node its own `spec.bgp.routerId`.")]
    RouterIDRefused,
    /// One side rejects the hold time of the other (RFC 4271 §4.2).
    #[strum(message = "Set `spec.holdTime` to 0 or to at least 3 s.")]
    HoldTimeRefused,
    /// One side requires a capability that the other does not have (RFC 5492).
    #[strum(message = "Compare the capability in the message with `spec.families`.")]
    CapabilityMissing,
    /// The BGP roles of both sides do not fit (RFC 9234).
    #[strum(message = "Set `spec.role` to the counterpart of the router's role.")]
    RoleMismatch,
    /// No message arrived within the hold time.
    #[strum(message = "Check the path for packet loss, and the router for overload.")]
    HoldTimerExpired,
    /// One side announces more prefixes than the other accepts.
    #[strum(
        message = "Let the router announce none to the nodes, or raise its limit; `spec.aggregationLength` of the \
                       Advertisement reduces the number of prefixes."
    )]
    TooManyPrefixes,
    /// The router has shut the session down (RFC 4486, Administrative Shutdown).
    #[strum(message = "Enable the neighbor on the router, or start its BGP process again.")]
    ShutDownByPeer,
    /// The neighbor was removed from the router (RFC 4486, Peer De-configured).
    #[strum(message = "Configure the node as a neighbor on the router.")]
    RemovedByPeer,
    /// The router rejected the connection of the node (RFC 4486, Connection Rejected).
    #[strum(
        message = "Configure the node as a neighbor on the router, or set `spec.sourceAddress` to the address that \
                       the router expects."
    )]
    RejectedByPeer,
    /// The router lacks resources for the session (RFC 4486, Out of Resources).
    #[strum(message = "Examine the log of the router.")]
    PeerOutOfResources,
    /// BFD detected a failure of the path (RFC 9384).
    #[strum(message = "Check the link, and compare the BFD intervals of both sides.")]
    BFDDown,
}

impl ConditionReason {
    /// All reasons, in the order of the variants, which are grouped by condition type.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the reason in CamelCase, as published in conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the meaning of the reason in one sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns the remedy for the reason; for a healthy state, the text that no action is required.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        self.get_message().unwrap_or(NO_ACTION)
    }
}

#[cfg(test)]
mod tests;
