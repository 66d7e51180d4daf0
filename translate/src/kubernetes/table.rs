//! Table of the fields of Kubernetes and MetalLB kinds, each with its translation. [`super::fields`] looks up
//! the fields of an object in it.

use super::fields::{
    Field,
    FieldMapping::{self, Approximated, Mapped, NotNeeded, NotSupported, ProxyOnly},
    Kind::{
        self, BfdProfile, BgpAdvertisement, BgpPeer, Community, EndpointSlice, Endpoints, IpAddressPool,
        L2Advertisement, NetworkPolicy, Node, Pod, Service,
    },
};

const fn row(kind: Kind, path: &'static str, fate: FieldMapping, words: &'static str) -> Field {
    Field { kind, path, fate, words }
}

/// Translation of every Kubernetes and MetalLB field, kind by kind.
#[rustfmt::skip]
pub const TABLE: &[Field] = &[
    row(Service, "apiVersion", NotNeeded, ""),
    row(Service, "kind", NotNeeded, ""),
    row(Service, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(Service, "metadata.namespace", Mapped, "the namespace"),
    row(Service, "metadata.labels", Mapped, "labels, matched by selectors of pools and advertisements; \
                                             with `service.kubernetes.io/service-proxy-name` the Service \
                                             is left to another proxy"),
    row(Service, "metadata.annotations.metallb.io/address-pool", Mapped, "`spec.loadBalancer.pool`: the \
                                                                          cluster's own pool of this \
                                                                          name, otherwise a pool created \
                                                                          in Tidegate"),
    row(Service, "metadata.annotations.metallb.universe.tf/address-pool", Mapped, "same as \
                                                                                   `metallb.io/address-pool`, \
                                                                                   which takes precedence"),
    row(Service, "metadata.annotations.metallb.io/loadBalancerIPs", Mapped, "`spec.loadBalancer.addresses`"),
    row(Service, "metadata.annotations.metallb.universe.tf/loadBalancerIPs", Mapped, "same as \
                                                                                      `metallb.io/loadBalancerIPs`, \
                                                                                      which takes \
                                                                                      precedence"),
    row(Service, "metadata.annotations.metallb.io/allow-shared-ip", Mapped, "\
                                                                             `spec.loadBalancer.sharingKey`; \
                                                                             an invalid name is replaced \
                                                                             by a hash. With \
                                                                             `externalTrafficPolicy: \
                                                                             Local` only Services with \
                                                                             the same endpoints share an \
                                                                             address"),
    row(Service, "metadata.annotations.metallb.universe.tf/allow-shared-ip", Mapped, "same as \
                                                                                      `metallb.io/allow-shared-ip`, \
                                                                                      which takes \
                                                                                      precedence"),
    row(Service, "metadata.annotations.metallb.io/ip-allocated-from-pool", Mapped, "the address in the \
                                                                                    status was assigned \
                                                                                    by MetalLB: it is \
                                                                                    requested until \
                                                                                    Tidegate has \
                                                                                    assigned it, so that \
                                                                                    the Service keeps it"),
    row(Service, "metadata.annotations.metallb.universe.tf/ip-allocated-from-pool", Mapped, "same as \
                                                                                             `metallb.io/ip-allocated-from-pool`"),
    row(Service, "metadata.annotations.external-dns.alpha.kubernetes.io/hostname", Mapped, "`spec.hostnames`; names with a wildcard are not supported"),
    row(Service, "metadata.annotations.service.kubernetes.io/topology-mode", NotSupported, "topology \
                                                                                            hints are \
                                                                                            not \
                                                                                            supported; \
                                                                                            prefer near \
                                                                                            endpoints \
                                                                                            with \
                                                                                            `spec.trafficDistribution`"),
    row(Service, "metadata.annotations.service.kubernetes.io/topology-aware-hints", NotSupported, "\
                                                                                                   topology \
                                                                                                   hints \
                                                                                                   are \
                                                                                                   not \
                                                                                                   supported; \
                                                                                                   prefer \
                                                                                                   near \
                                                                                                   endpoints \
                                                                                                   with \
                                                                                                   `spec.trafficDistribution`"),
    row(Service, "metadata.annotations.*", NotNeeded, "settings of other programs"),
    row(Service, "metadata.uid", NotNeeded, ""),
    row(Service, "metadata.resourceVersion", NotNeeded, ""),
    row(Service, "metadata.generation", NotNeeded, ""),
    row(Service, "metadata.creationTimestamp", NotNeeded, ""),
    row(Service, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(Service, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(Service, "metadata.finalizers", NotNeeded, ""),
    row(Service, "metadata.generateName", NotNeeded, ""),
    row(Service, "metadata.managedFields", NotNeeded, ""),
    row(Service, "metadata.ownerReferences", NotNeeded, ""),
    row(Service, "metadata.selfLink", NotNeeded, ""),
    row(Service, "spec.type", Mapped, "with `--mode load-balancer` only LoadBalancer is handled. A \
                                       LoadBalancer of another class is proxied as NodePort"),
    row(Service, "spec.loadBalancerClass", Mapped, "only Services of the class in \
                                                    `--load-balancer-class` get addresses; without the \
                                                    flag, those without a class"),
    row(Service, "spec.loadBalancerIP", Mapped, "`spec.loadBalancer.addresses`, unless an annotation \
                                                 requests addresses"),
    row(Service, "spec.loadBalancerSourceRanges", Approximated, "with `spec.sourceRangesScope: LoadBalancerOnly`, so \
                                                                 that node ports, external IPs and an IP family \
                                                                 without ranges stay open. The node itself may \
                                                                 always connect. Not used for a Service of \
                                                                 another load balancer, whose addresses are not \
                                                                 served"),
    row(Service, "spec.allocateLoadBalancerNodePorts", ProxyOnly, "with `--mode load-balancer` Tidegate opens no node ports"),
    row(Service, "spec.clusterIP", ProxyOnly, "must be within the control server's `--service-cidr`"),
    row(Service, "spec.clusterIPs", ProxyOnly, "must be within the control server's `--service-cidr`"),
    row(Service, "spec.ipFamilies", Mapped, ""),
    row(Service, "spec.ipFamilyPolicy", Mapped, ""),
    row(Service, "spec.externalIPs", ProxyOnly, "must be allowed by the control server's \
                                                 `--allow-external-ip`"),
    row(Service, "spec.externalName", ProxyOnly, ""),
    row(Service, "spec.externalTrafficPolicy", Mapped, ""),
    row(Service, "spec.internalTrafficPolicy", Mapped, ""),
    row(Service, "spec.healthCheckNodePort", ProxyOnly, "with `--mode load-balancer` the cluster's proxy \
                                                         serves this port; Tidegate assigns another one"),
    row(Service, "spec.ports[].name", Mapped, "at most 100 ports; a Service with more is not accepted"),
    row(Service, "spec.ports[].protocol", Mapped, ""),
    row(Service, "spec.ports[].port", Mapped, ""),
    row(Service, "spec.ports[].targetPort", Mapped, "the ports of EndpointSlices take precedence"),
    row(Service, "spec.ports[].nodePort", ProxyOnly, "must be within the control server's \
                                                      `--node-port-range`"),
    row(Service, "spec.ports[].appProtocol", Mapped, "used by gateways"),
    row(Service, "spec.publishNotReadyAddresses", Mapped, ""),
    row(Service, "spec.selector", NotNeeded, "evaluated by Kubernetes into EndpointSlices"),
    row(Service, "spec.sessionAffinity", Mapped, ""),
    row(Service, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", Mapped, ""),
    row(Service, "spec.trafficDistribution", Mapped, "PreferClose, PreferSameZone and PreferSameNode; \
                                                      other values are left out with a warning. The node \
                                                      decides by the zones of the endpoints"),
    row(Service, "spec.topologyKeys", NotSupported, "removed from Kubernetes; prefer near endpoints with \
                                                     `spec.trafficDistribution`"),
    row(Service, "spec.ipFamily", NotSupported, "removed from Kubernetes; use `spec.ipFamilies`"),
    row(Service, "status.loadBalancer", Mapped, "written by the adapter, with `ipMode: VIP`; read if \
                                                 MetalLB assigned the address"),
    row(Service, "status.conditions", NotNeeded, "`tidegate.io/Ready` and `tidegate.io/Supported` are written by the adapter"),
    row(EndpointSlice, "apiVersion", NotNeeded, ""),
    row(EndpointSlice, "kind", NotNeeded, ""),
    row(EndpointSlice, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(EndpointSlice, "metadata.namespace", Mapped, "the namespace"),
    row(EndpointSlice, "metadata.labels", Mapped, "`kubernetes.io/service-name` contains the Service; \
                                                   slices without it are ignored"),
    row(EndpointSlice, "metadata.annotations", NotNeeded, ""),
    row(EndpointSlice, "metadata.uid", NotNeeded, ""),
    row(EndpointSlice, "metadata.resourceVersion", NotNeeded, ""),
    row(EndpointSlice, "metadata.generation", NotNeeded, ""),
    row(EndpointSlice, "metadata.creationTimestamp", NotNeeded, ""),
    row(EndpointSlice, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(EndpointSlice, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(EndpointSlice, "metadata.finalizers", NotNeeded, ""),
    row(EndpointSlice, "metadata.generateName", NotNeeded, ""),
    row(EndpointSlice, "metadata.managedFields", NotNeeded, ""),
    row(EndpointSlice, "metadata.ownerReferences", NotNeeded, ""),
    row(EndpointSlice, "metadata.selfLink", NotNeeded, ""),
    row(EndpointSlice, "addressType", Mapped, "FQDN is not supported"),
    row(EndpointSlice, "ports[].name", Mapped, ""),
    row(EndpointSlice, "ports[].protocol", Mapped, ""),
    row(EndpointSlice, "ports[].port", Mapped, "a port without a number means all ports, which is not \
                                                supported"),
    row(EndpointSlice, "ports[].appProtocol", NotNeeded, "informational for other programs"),
    row(EndpointSlice, "endpoints[].addresses", Mapped, "the first address; all belong to the same endpoint"),
    row(EndpointSlice, "endpoints[].conditions.ready", Mapped, "default: true"),
    row(EndpointSlice, "endpoints[].conditions.serving", Mapped, "default: same as `ready`"),
    row(EndpointSlice, "endpoints[].conditions.terminating", Mapped, ""),
    row(EndpointSlice, "endpoints[].nodeName", Mapped, ""),
    row(EndpointSlice, "endpoints[].zone", Mapped, "must be a DNS label"),
    row(EndpointSlice, "endpoints[].hostname", Mapped, "must be a DNS label"),
    row(EndpointSlice, "endpoints[].targetRef", NotNeeded, "source of the endpoint"),
    row(EndpointSlice, "endpoints[].hints", NotNeeded, "nodes decide by the zones of the endpoints"),
    row(EndpointSlice, "endpoints[].deprecatedTopology", NotNeeded, "replaced by separate fields"),
    row(Endpoints, "apiVersion", NotNeeded, ""),
    row(Endpoints, "kind", NotNeeded, ""),
    row(Endpoints, "metadata.name", Mapped, "the name, and the Service of the endpoints; further subsets \
                                             get a numeric suffix"),
    row(Endpoints, "metadata.namespace", Mapped, "the namespace"),
    row(Endpoints, "metadata.labels", Mapped, "labels"),
    row(Endpoints, "metadata.annotations", NotNeeded, ""),
    row(Endpoints, "metadata.uid", NotNeeded, ""),
    row(Endpoints, "metadata.resourceVersion", NotNeeded, ""),
    row(Endpoints, "metadata.generation", NotNeeded, ""),
    row(Endpoints, "metadata.creationTimestamp", NotNeeded, ""),
    row(Endpoints, "metadata.deletionTimestamp", NotNeeded, ""),
    row(Endpoints, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(Endpoints, "metadata.finalizers", NotNeeded, ""),
    row(Endpoints, "metadata.generateName", NotNeeded, ""),
    row(Endpoints, "metadata.managedFields", NotNeeded, ""),
    row(Endpoints, "metadata.ownerReferences", NotNeeded, ""),
    row(Endpoints, "metadata.selfLink", NotNeeded, ""),
    row(Endpoints, "subsets[].ports[].name", Mapped, ""),
    row(Endpoints, "subsets[].ports[].protocol", Mapped, ""),
    row(Endpoints, "subsets[].ports[].port", Mapped, ""),
    row(Endpoints, "subsets[].ports[].appProtocol", NotNeeded, "informational for other programs"),
    row(Endpoints, "subsets[].addresses[].ip", Mapped, "a ready endpoint"),
    row(Endpoints, "subsets[].addresses[].nodeName", Mapped, ""),
    row(Endpoints, "subsets[].addresses[].hostname", Mapped, "must be a DNS label"),
    row(Endpoints, "subsets[].addresses[].targetRef", NotNeeded, "source of the endpoint"),
    row(Endpoints, "subsets[].notReadyAddresses[].ip", Mapped, "an endpoint that is not ready"),
    row(Endpoints, "subsets[].notReadyAddresses[].nodeName", Mapped, ""),
    row(Endpoints, "subsets[].notReadyAddresses[].hostname", Mapped, "must be a DNS label"),
    row(Endpoints, "subsets[].notReadyAddresses[].targetRef", NotNeeded, "source of the endpoint"),
    row(Node, "apiVersion", NotNeeded, ""),
    row(Node, "kind", NotNeeded, ""),
    row(Node, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(Node, "metadata.labels", Mapped, "added to the labels of the Node, matched by node selectors; \
                                          the zone is that of `topology.kubernetes.io/zone`; \
                                          `node.kubernetes.io/exclude-from-external-load-balancers` sets \
                                          `spec.unschedulable`"),
    row(Node, "metadata.annotations", NotNeeded, ""),
    row(Node, "metadata.uid", NotNeeded, ""),
    row(Node, "metadata.resourceVersion", NotNeeded, ""),
    row(Node, "metadata.generation", NotNeeded, ""),
    row(Node, "metadata.creationTimestamp", NotNeeded, ""),
    row(Node, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(Node, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(Node, "metadata.finalizers", NotNeeded, ""),
    row(Node, "metadata.generateName", NotNeeded, ""),
    row(Node, "metadata.managedFields", NotNeeded, ""),
    row(Node, "metadata.ownerReferences", NotNeeded, ""),
    row(Node, "metadata.selfLink", NotNeeded, ""),
    row(Node, "spec.podCIDR", Mapped, "used if `podCIDRs` is not set"),
    row(Node, "spec.podCIDRs", Mapped, "`spec.workloadCIDRs`"),
    row(Node, "spec.providerID", NotNeeded, ""),
    row(Node, "spec.externalID", NotNeeded, ""),
    row(Node, "spec.configSource", NotNeeded, ""),
    row(Node, "spec.taints", NotNeeded, "about pods"),
    row(Node, "spec.unschedulable", NotNeeded, "applies to pods: a cordoned node keeps announcing, as \
                                                with MetalLB; stop it with `tidegate drain`"),
    row(Node, "status.addresses", Mapped, "used if the agent detected no addresses: those of type \
                                           InternalIP, then ExternalIP"),
    row(Node, "status.conditions", Mapped, "NetworkUnavailable sets `spec.unschedulable`; liveness is \
                                            reported by the agent"),
    row(Node, "status.allocatable", NotNeeded, ""),
    row(Node, "status.capacity", NotNeeded, ""),
    row(Node, "status.config", NotNeeded, ""),
    row(Node, "status.daemonEndpoints", NotNeeded, ""),
    row(Node, "status.declaredFeatures", NotNeeded, ""),
    row(Node, "status.features", NotNeeded, ""),
    row(Node, "status.images", NotNeeded, ""),
    row(Node, "status.nodeInfo", NotNeeded, ""),
    row(Node, "status.phase", NotNeeded, ""),
    row(Node, "status.runtimeHandlers", NotNeeded, ""),
    row(Node, "status.volumesAttached", NotNeeded, ""),
    row(Node, "status.volumesInUse", NotNeeded, ""),
    row(Pod, "apiVersion", NotNeeded, ""),
    row(Pod, "kind", NotNeeded, ""),
    row(Pod, "metadata.name", Mapped, "the name of the Workload; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(Pod, "metadata.namespace", Mapped, "the namespace"),
    row(Pod, "metadata.labels", Mapped, "labels, matched by selectors of policies; at most 98, or 97 with `--cluster`. With more, the Workload has none of them and is isolated"),
    row(Pod, "metadata.deletionTimestamp", Mapped, "phase `Terminating`"),
    row(Pod, "metadata.*", NotNeeded, ""),
    row(Pod, "spec.nodeName", Mapped, "`spec.node`"),
    row(Pod, "spec.hostNetwork", Mapped, "pods of the host network are left out; policies do not apply to them"),
    row(Pod, "spec.containers[].ports[].name", Mapped, "name in `spec.ports`; ports without a name are not needed"),
    row(Pod, "spec.containers[].ports[].containerPort", Mapped, ""),
    row(Pod, "spec.containers[].ports[].protocol", Mapped, ""),
    row(Pod, "spec.initContainers[].ports", Mapped, "like those of containers, if the init container is a sidecar"),
    row(Pod, "spec.initContainers[].restartPolicy", Mapped, "`Always`: a sidecar"),
    row(Pod, "spec.*", NotNeeded, "about the containers"),
    row(Pod, "status.phase", Mapped, "pods that have ended are left out"),
    row(Pod, "status.podIPs", Mapped, "`spec.addresses`; pods without an address are left out"),
    row(Pod, "status.podIP", Mapped, "used if `podIPs` is not set"),
    row(Pod, "status.conditions", Mapped, "Ready is `spec.ready`"),
    row(Pod, "status.*", NotNeeded, ""),
    row(NetworkPolicy, "apiVersion", NotNeeded, ""),
    row(NetworkPolicy, "kind", NotNeeded, ""),
    row(NetworkPolicy, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(NetworkPolicy, "metadata.namespace", Mapped, "the namespace"),
    row(NetworkPolicy, "metadata.labels", NotNeeded, "no selector matches policies"),
    row(NetworkPolicy, "metadata.*", NotNeeded, ""),
    row(NetworkPolicy, "spec.podSelector", Mapped, "`spec.selector`; without it, all pods of the namespace. If it cannot be translated, the policy selects all of them and accepts nothing"),
    row(NetworkPolicy, "spec.policyTypes", Mapped, "rules of a direction that is not listed have no effect"),
    row(NetworkPolicy, "spec.ingress[].from[].podSelector", Mapped, "`workloadSelector`"),
    row(NetworkPolicy, "spec.ingress[].from[].namespaceSelector", Mapped, "by name as it is; otherwise the list of the namespaces that have the labels, which follows them. Selectors that list no names match pods of the cluster only"),
    row(NetworkPolicy, "spec.ingress[].from[].ipBlock.cidr", Mapped, ""),
    row(NetworkPolicy, "spec.ingress[].from[].ipBlock.except", Mapped, "at most 64 networks, otherwise the peer is left out"),
    row(NetworkPolicy, "spec.ingress[].ports[].protocol", Mapped, ""),
    row(NetworkPolicy, "spec.ingress[].ports[].port", Mapped, "number or name"),
    row(NetworkPolicy, "spec.ingress[].ports[].endPort", Mapped, ""),
    row(NetworkPolicy, "spec.egress[].to[].podSelector", Mapped, "`workloadSelector`"),
    row(NetworkPolicy, "spec.egress[].to[].namespaceSelector", Mapped, "same as `from` in `ingress`"),
    row(NetworkPolicy, "spec.egress[].to[].ipBlock.cidr", Mapped, ""),
    row(NetworkPolicy, "spec.egress[].to[].ipBlock.except", Mapped, "at most 64 networks, otherwise the peer is left out"),
    row(NetworkPolicy, "spec.egress[].ports[].protocol", Mapped, ""),
    row(NetworkPolicy, "spec.egress[].ports[].port", Mapped, "number or name; an ipBlock has no named ports"),
    row(NetworkPolicy, "spec.egress[].ports[].endPort", Mapped, ""),
    row(NetworkPolicy, "status", NotNeeded, ""),
    row(IpAddressPool, "apiVersion", NotNeeded, ""),
    row(IpAddressPool, "kind", NotNeeded, ""),
    row(IpAddressPool, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(IpAddressPool, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(IpAddressPool, "metadata.labels", Mapped, "labels, matched by `ipAddressPoolSelectors`"),
    row(IpAddressPool, "metadata.annotations", NotNeeded, ""),
    row(IpAddressPool, "metadata.uid", NotNeeded, ""),
    row(IpAddressPool, "metadata.resourceVersion", NotNeeded, ""),
    row(IpAddressPool, "metadata.generation", NotNeeded, ""),
    row(IpAddressPool, "metadata.creationTimestamp", NotNeeded, ""),
    row(IpAddressPool, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(IpAddressPool, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(IpAddressPool, "metadata.finalizers", NotNeeded, ""),
    row(IpAddressPool, "metadata.generateName", NotNeeded, ""),
    row(IpAddressPool, "metadata.managedFields", NotNeeded, ""),
    row(IpAddressPool, "metadata.ownerReferences", NotNeeded, ""),
    row(IpAddressPool, "metadata.selfLink", NotNeeded, ""),
    row(IpAddressPool, "status", NotNeeded, ""),
    row(IpAddressPool, "spec.addresses", Mapped, "a range with host bits set becomes the network that \
                                                  contains it"),
    row(IpAddressPool, "spec.autoAssign", Mapped, ""),
    row(IpAddressPool, "spec.avoidBuggyIPs", Mapped, ""),
    row(IpAddressPool, "spec.serviceAllocation.priority", Mapped, "0 means none; ties are broken by name"),
    row(IpAddressPool, "spec.serviceAllocation.namespaces", Mapped, ""),
    row(IpAddressPool, "spec.serviceAllocation.namespaceSelectors", Mapped, "the matching namespaces are \
                                                                             listed by name, and kept up \
                                                                             to date"),
    row(IpAddressPool, "spec.serviceAllocation.serviceSelectors", Mapped, ""),
    row(L2Advertisement, "apiVersion", NotNeeded, ""),
    row(L2Advertisement, "kind", NotNeeded, ""),
    row(L2Advertisement, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(L2Advertisement, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(L2Advertisement, "metadata.labels", NotNeeded, ""),
    row(L2Advertisement, "metadata.annotations", NotNeeded, ""),
    row(L2Advertisement, "metadata.uid", NotNeeded, ""),
    row(L2Advertisement, "metadata.resourceVersion", NotNeeded, ""),
    row(L2Advertisement, "metadata.generation", NotNeeded, ""),
    row(L2Advertisement, "metadata.creationTimestamp", NotNeeded, ""),
    row(L2Advertisement, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(L2Advertisement, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(L2Advertisement, "metadata.finalizers", NotNeeded, ""),
    row(L2Advertisement, "metadata.generateName", NotNeeded, ""),
    row(L2Advertisement, "metadata.managedFields", NotNeeded, ""),
    row(L2Advertisement, "metadata.ownerReferences", NotNeeded, ""),
    row(L2Advertisement, "metadata.selfLink", NotNeeded, ""),
    row(L2Advertisement, "status", NotNeeded, ""),
    row(L2Advertisement, "spec.ipAddressPools", Mapped, ""),
    row(L2Advertisement, "spec.ipAddressPoolSelectors", Mapped, "the matching pools are listed by name, \
                                                                 and kept up to date"),
    row(L2Advertisement, "spec.nodeSelectors", Approximated, "match the labels of Tidegate Nodes"),
    row(L2Advertisement, "spec.preferredNodeSelectors", Approximated, "match the labels of Tidegate Nodes"),
    row(L2Advertisement, "spec.serviceSelectors", Mapped, ""),
    row(L2Advertisement, "spec.interfaces", Mapped, ""),
    row(BgpAdvertisement, "apiVersion", NotNeeded, ""),
    row(BgpAdvertisement, "kind", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(BgpAdvertisement, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(BgpAdvertisement, "metadata.labels", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.annotations", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.uid", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.resourceVersion", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.generation", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.creationTimestamp", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(BgpAdvertisement, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.finalizers", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.generateName", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.managedFields", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.ownerReferences", NotNeeded, ""),
    row(BgpAdvertisement, "metadata.selfLink", NotNeeded, ""),
    row(BgpAdvertisement, "status", NotNeeded, ""),
    row(BgpAdvertisement, "spec.aggregationLength", Mapped, ""),
    row(BgpAdvertisement, "spec.aggregationLengthV6", Mapped, ""),
    row(BgpAdvertisement, "spec.localPref", Approximated, "left out if all listed peers are external, \
                                                           because it is not sent to them"),
    row(BgpAdvertisement, "spec.communities", Mapped, "names are replaced by the values in Community \
                                                       resources"),
    row(BgpAdvertisement, "spec.ipAddressPools", Mapped, ""),
    row(BgpAdvertisement, "spec.ipAddressPoolSelectors", Mapped, "the matching pools are listed by name, \
                                                                  and kept up to date"),
    row(BgpAdvertisement, "spec.nodeSelectors", Approximated, "match the labels of Tidegate Nodes"),
    row(BgpAdvertisement, "spec.serviceSelectors", Mapped, ""),
    row(BgpAdvertisement, "spec.peers", Mapped, ""),
    row(BgpPeer, "apiVersion", NotNeeded, ""),
    row(BgpPeer, "kind", NotNeeded, ""),
    row(BgpPeer, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(BgpPeer, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(BgpPeer, "metadata.labels", NotNeeded, ""),
    row(BgpPeer, "metadata.annotations", NotNeeded, ""),
    row(BgpPeer, "metadata.uid", NotNeeded, ""),
    row(BgpPeer, "metadata.resourceVersion", NotNeeded, ""),
    row(BgpPeer, "metadata.generation", NotNeeded, ""),
    row(BgpPeer, "metadata.creationTimestamp", NotNeeded, ""),
    row(BgpPeer, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(BgpPeer, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(BgpPeer, "metadata.finalizers", NotNeeded, ""),
    row(BgpPeer, "metadata.generateName", NotNeeded, ""),
    row(BgpPeer, "metadata.managedFields", NotNeeded, ""),
    row(BgpPeer, "metadata.ownerReferences", NotNeeded, ""),
    row(BgpPeer, "metadata.selfLink", NotNeeded, ""),
    row(BgpPeer, "status", NotNeeded, ""),
    row(BgpPeer, "spec.myASN", Mapped, "`localASN`"),
    row(BgpPeer, "spec.peerASN", Mapped, ""),
    row(BgpPeer, "spec.dynamicASN", Mapped, "`peerASN: internal` or `external`"),
    row(BgpPeer, "spec.localASN", NotSupported, "the AS of the sessions is `myASN`; a different AS \
                                                 towards a peer is not supported"),
    row(BgpPeer, "spec.peerAddress", Mapped, ""),
    row(BgpPeer, "spec.interface", Mapped, ""),
    row(BgpPeer, "spec.peerPort", Mapped, ""),
    row(BgpPeer, "spec.sourceAddress", Mapped, ""),
    row(BgpPeer, "spec.routerID", NotSupported, "configured per node: set `spec.bgp.routerId` of each Node"),
    row(BgpPeer, "spec.holdTime", Approximated, "in whole seconds"),
    row(BgpPeer, "spec.keepaliveTime", Approximated, "in whole seconds"),
    row(BgpPeer, "spec.connectTime", Approximated, "in whole seconds"),
    row(BgpPeer, "spec.password", Mapped, ""),
    row(BgpPeer, "spec.passwordSecret", Approximated, "read with `--password-secrets`, if it is of type \
                                                       `kubernetes.io/basic-auth` and in the namespace \
                                                       of the peer; otherwise the peer is disabled, \
                                                       because a protected session is not attempted \
                                                       without protection"),
    row(BgpPeer, "spec.bfdProfile", Mapped, ""),
    row(BgpPeer, "spec.enableGracefulRestart", Mapped, ""),
    row(BgpPeer, "spec.ebgpMultiHop", Approximated, "left out for internal peers, which may be any number of hops away"),
    row(BgpPeer, "spec.vrf", NotSupported, "the peer is left out: the address may be used in another \
                                            network"),
    row(BgpPeer, "spec.disableMP", Mapped, "only the address family of the session"),
    row(BgpPeer, "spec.dualStackAddressFamily", Mapped, "both families"),
    row(BgpPeer, "spec.nodeSelectors", Approximated, "match the labels of Tidegate Nodes"),
    row(BfdProfile, "apiVersion", NotNeeded, ""),
    row(BfdProfile, "kind", NotNeeded, ""),
    row(BfdProfile, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(BfdProfile, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(BfdProfile, "metadata.labels", NotNeeded, ""),
    row(BfdProfile, "metadata.annotations", NotNeeded, ""),
    row(BfdProfile, "metadata.uid", NotNeeded, ""),
    row(BfdProfile, "metadata.resourceVersion", NotNeeded, ""),
    row(BfdProfile, "metadata.generation", NotNeeded, ""),
    row(BfdProfile, "metadata.creationTimestamp", NotNeeded, ""),
    row(BfdProfile, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(BfdProfile, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(BfdProfile, "metadata.finalizers", NotNeeded, ""),
    row(BfdProfile, "metadata.generateName", NotNeeded, ""),
    row(BfdProfile, "metadata.managedFields", NotNeeded, ""),
    row(BfdProfile, "metadata.ownerReferences", NotNeeded, ""),
    row(BfdProfile, "metadata.selfLink", NotNeeded, ""),
    row(BfdProfile, "status", NotNeeded, ""),
    row(BfdProfile, "spec.receiveInterval", Mapped, ""),
    row(BfdProfile, "spec.transmitInterval", Mapped, ""),
    row(BfdProfile, "spec.detectMultiplier", Mapped, ""),
    row(BfdProfile, "spec.passiveMode", Mapped, ""),
    row(BfdProfile, "spec.minimumTtl", Mapped, ""),
    row(BfdProfile, "spec.echoMode", NotSupported, "echo packets are not supported; the intervals of \
                                                    control packets apply"),
    row(BfdProfile, "spec.echoInterval", NotSupported, "echo packets are not supported"),
    row(Community, "apiVersion", NotNeeded, ""),
    row(Community, "kind", NotNeeded, ""),
    row(Community, "metadata.name", Mapped, "the name; see *Several clusters* in [Kubernetes](../how-to/kubernetes.md)"),
    row(Community, "metadata.namespace", NotNeeded, "objects of all watched namespaces form one set"),
    row(Community, "metadata.labels", NotNeeded, ""),
    row(Community, "metadata.annotations", NotNeeded, ""),
    row(Community, "metadata.uid", NotNeeded, ""),
    row(Community, "metadata.resourceVersion", NotNeeded, ""),
    row(Community, "metadata.generation", NotNeeded, ""),
    row(Community, "metadata.creationTimestamp", NotNeeded, ""),
    row(Community, "metadata.deletionTimestamp", NotNeeded, "in effect until the object is deleted"),
    row(Community, "metadata.deletionGracePeriodSeconds", NotNeeded, ""),
    row(Community, "metadata.finalizers", NotNeeded, ""),
    row(Community, "metadata.generateName", NotNeeded, ""),
    row(Community, "metadata.managedFields", NotNeeded, ""),
    row(Community, "metadata.ownerReferences", NotNeeded, ""),
    row(Community, "metadata.selfLink", NotNeeded, ""),
    row(Community, "status", NotNeeded, ""),
    row(Community, "spec.communities", Mapped, "replaced wherever they are used"),
];
