//! List of the Service tests of Kubernetes (`test/e2e/network` at 1.36). Each scenario refers to the tests
//! that check the same behavior.

/// Kubernetes test: its key, its file, its claim, and, if no scenario covers the test, the reason.
pub struct Upstream {
    pub key: &'static str,
    pub file: &'static str,
    pub claim: &'static str,
    pub reason: &'static str,
}

const fn test(key: &'static str, file: &'static str, claim: &'static str) -> Upstream {
    Upstream { key, file, claim, reason: "" }
}

impl Upstream {
    const fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }
}

const API: &str = "an object of the Kubernetes API";
const DNS: &str = "concerns DNS names or discovery, not packets";
const ALLOCATION: &str =
    "allocation happens when the Service is written: `api/tests`, `lab/tests/it/services.rs`";
const CLUSTER: &str = "a property of the cluster's network, not of a Service";

const S: &str = "service.go";
const L: &str = "loadbalancer.go";
const C: &str = "conntrack.go";
const N: &str = "networking.go";
const D: &str = "dual_stack.go";
const T: &str = "traffic_distribution.go";

pub const UPSTREAM: &[Upstream] = &[
    test("S1", S, "serve a basic endpoint from pods"),
    test("S2", S, "serve multiport endpoints from pods"),
    test("S3", S, "be updated after adding or deleting ports"),
    test("S4", S, "preserve source pod IP through the cluster IP"),
    test("S5", S, "hairpin back to themselves"),
    test("S6", S, "up and down services"),
    test("S7", S, "work after the service has been recreated"),
    test("S8", S, "work after restarting kube-proxy"),
    test("S9", S, "work after restarting apiserver"),
    test("S10", S, "create a functioning NodePort service"),
    test("S11", S, "ExternalIP that is not assigned to a node"),
    test("S12", S, "NodePort on the same port number but different protocols"),
    test("S13", S, "change the type from ExternalName to ClusterIP"),
    test("S14", S, "change the type from ExternalName to NodePort"),
    test("S15", S, "change the type from ClusterIP to ExternalName"),
    test("S16", S, "change the type from NodePort to ExternalName"),
    test("S17", S, "prevent NodePort collisions"),
    test("S18", S, "check NodePort out-of-range").because(ALLOCATION),
    test("S19", S, "release NodePorts on delete"),
    test("S20", S, "create endpoints for unready pods"),
    test("S21", S, "connect to terminating and unready endpoints if published"),
    test("S22", S, "not connect to terminating and unready endpoints otherwise"),
    test("S23", S, "session affinity, clusterIP"),
    test("S24", S, "session affinity timeout, clusterIP"),
    test("S25", S, "switch session affinity, clusterIP"),
    test("S26", S, "session affinity, NodePort"),
    test("S27", S, "session affinity timeout, NodePort"),
    test("S28", S, "switch session affinity, NodePort"),
    test("S29", S, "implement service-proxy-name")
        .because("a label by which kube-proxy is told to leave a Service"),
    test("S30", S, "implement headless")
        .because("no address and no rules: `lab/tests/it/services.rs` (F033)"),
    test("S31", S, "be rejected when no endpoints exist"),
    test("S32", S, "be rejected for evicted pods"),
    test("S33", S, "internalTrafficPolicy=Local Pod to Pod"),
    test("S34", S, "internalTrafficPolicy=Local Pod (hostNetwork) to Pod"),
    test("S35", S, "internalTrafficPolicy=Local to Pod (hostNetwork)"),
    test("S36", S, "externalTrafficPolicy=Local for NodePort"),
    test("S37", S, "fail health check node port if there are only terminating endpoints"),
    test("S38", S, "fallback to terminating endpoints, internal Cluster"),
    test("S39", S, "fallback to local terminating endpoints, internal Local"),
    test("S40", S, "fallback to terminating endpoints, external Cluster"),
    test("S41", S, "fallback to local terminating endpoints, external Local"),
    test("S42", S, "find a service from listing all namespaces").because(API),
    test("S43", S, "complete a service status lifecycle").because(API),
    test("S44", S, "delete a collection of services").because(API),
    test("S45", S, "same port and different protocols"),
    test("S46", S, "same port and different protocol, internal traffic, LoadBalancer"),
    test("S47", S, "basic SCTP service"),
    test("S48", S, "NodePort and HealthCheckNodePort when ExternalTrafficPolicy changes"),
    test("S49", S, "ports exposed by restartable init containers"),
    test("S50", S, "named ports exposed by restartable init containers"),
    test("S51", S, "named targetPorts that resolve to different ports"),
    test("L1", L, "change type and ports of a TCP service"),
    test("L2", L, "change type and ports of a UDP service"),
    test("L3", L, "only allow access from source ranges"),
    test("L4", L, "session affinity with Local policy"),
    test("L5", L, "switch session affinity with Local policy"),
    test("L6", L, "session affinity with Cluster policy"),
    test("L7", L, "switch session affinity with Cluster policy"),
    test("L8", L, "cleanup finalizer").because(API),
    test("L9", L, "LoadBalancer without NodePort, and change it"),
    test("L10", L, "preserve UDP traffic when the server cycles on different nodes"),
    test("L11", L, "work for type=LoadBalancer, Local"),
    test("L12", L, "only target nodes with endpoints"),
    test("L13", L, "target all nodes with endpoints"),
    test("L14", L, "work from pods"),
    test("L15", L, "no disruption in a rolling update, Cluster"),
    test("L16", L, "no disruption in a rolling update, Local"),
    test("L17", L, "preserve UDP traffic when the server cycles on the same nodes"),
    test("C1", C, "preserve UDP traffic when the server cycles, NodePort"),
    test("C2", C, "preserve UDP traffic when the server cycles, ClusterIP"),
    test("C3", C, "preserve UDP traffic when the server cycles, internal Local"),
    test("C4", C, "preserve UDP traffic when the server cycles, hostNetwork client"),
    test("C5", C, "preserve UDP traffic when initial unready endpoints get ready"),
    test("C6", C, "not vulnerable to the invalid conntrack state bug"),
    test("C7", C, "clean up conntrack entries when a UDP target port changes"),
    test("N1", N, "pod-Service: http"),
    test("N2", N, "pod-Service: udp"),
    test("N3", N, "pod-Service: sctp"),
    test("N4", N, "node-Service: http"),
    test("N5", N, "node-Service: udp"),
    test("N6", N, "node-Service: sctp"),
    test("N7", N, "endpoint-Service: http"),
    test("N8", N, "endpoint-Service: udp"),
    test("N9", N, "endpoint-Service: sctp"),
    test("N10", N, "multiple endpoint-Services with same selector"),
    test("N11", N, "update endpoints: http"),
    test("N12", N, "update endpoints: udp"),
    test("N13", N, "update nodePort: http"),
    test("N14", N, "update nodePort: udp"),
    test("N15", N, "basic nodePort: udp"),
    test("N16", N, "large requests: http"),
    test("N17", N, "large requests: udp"),
    test("N18", N, "endpoints using hostNetwork"),
    test("N19", N, "client IP affinity: http"),
    test("N20", N, "client IP affinity: udp"),
    test("N21", N, "kube-proxy urls")
        .because("`/healthz`, `/metrics` of the agent: `node-agent/tests/it/agent_loop.rs`"),
    test("N22", N, "recreate iptables rules if they are deleted"),
    test("N23", N, "Pod with SCTP HostPort").because(CLUSTER),
    test("N24", N, "internet connection over v4, v6, DNS").because(CLUSTER),
    test("N25", N, "static apiserver URL paths").because(API),
    test("D1", D, "at least one dual-stack node").because(CLUSTER),
    test("D2", D, "v4 and v6 pod IPs").because(CLUSTER),
    test("D3", D, "v4 and v6 host IPs").because(CLUSTER),
    test("D4", D, "reach a pod on v4 and v6"),
    test("D5", D, "single-stack clusterIP from the primary range"),
    test("D6", D, "clusterIP of v4 only"),
    test("D7", D, "clusterIP of v6 only"),
    test("D8", D, "clusterIPs of v4 and v6"),
    test("D9", D, "clusterIPs of v6 and v4"),
    test("D11", D, "pod-Service over the second family"),
    test("D12", D, "node-Service over the second family"),
    test("D13", D, "endpoint-Service over the second family"),
    test("D14", D, "pod-Service: sctp over the second family"),
    test("D15", D, "update endpoints: http over the second family"),
    test("D16", D, "update endpoints: udp over the second family"),
    test("D17", D, "client IP affinity: http over the second family"),
    test("D18", D, "client IP affinity: udp over the second family"),
    test("D19", D, "large requests over the second family"),
    test("D20", D, "hostNetwork endpoints over the second family"),
    test("T1", T, "same zone with PreferClose"),
    test("T2", T, "pods on multiple nodes with PreferClose"),
    test("T3", T, "same zone with PreferSameZone"),
    test("T4", T, "pods on multiple nodes with PreferSameZone"),
    test("T5", T, "same node, or the same zone, with PreferSameNode"),
    test("T6", T, "same node, and fall back when the endpoint goes"),
    test("T7", "topology_hints.go", "distribute endpoints evenly")
        .because("hints are a proportion that a controller computes; here nearness is decided on the node"),
    test("K1", "service_cidrs.go", "create and serve on different ranges"),
    test("K2", "service_cidrs.go", "ServiceCIDR and IPAddress API").because(API),
    test("P1", "pod_lifecycle.go", "connect to a terminating pod"),
    test("P2", "pod_lifecycle.go", "connect from a terminating pod"),
    test("P3", "pod_lifecycle.go", "zero downtime of a blue-green deployment"),
    test("X1", "kube_proxy.go", "set TCP CLOSE_WAIT timeout")
        .because("a sysctl of the host, left to the host"),
    test("X2", "kube_proxy.go", "metric for packets to localhost nodePorts")
        .because("node ports do not answer at loopback addresses in any mode"),
    test("X3", "no_snat.go", "pod traffic between pods without SNAT"),
    test("X4", "hostport.go", "no conflict between same hostPort").because(CLUSTER),
    test("X5", "service_latency.go", "endpoint latency is not very high")
        .because("a time; measured and printed, never asserted: `lab/tests/it/scale.rs`"),
    test("X6", "networking_perf.go", "run iperf2").because("a benchmark"),
    test("X7", "dns*.go, endpoints*.go, endpointslice*.go", "the DNS and endpoint tests").because(DNS),
];
