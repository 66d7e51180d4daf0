//! Quotas: limits on the resources that the objects of one namespace use, so that one namespace does not exhaust
//! the resources of all: node ports, load balancer addresses, health checks and memory.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    kinds::{
        load_balancer::LoadBalancerRequest,
        resource::{Object, Spec},
        service::ServiceSpec,
    },
    primitives::name::Namespace,
};

/// Resource whose use in one namespace a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaResource {
    /// Objects of kind Service.
    Services,
    /// Objects of kind EndpointSet.
    EndpointSets,
    /// Objects of kind Workload.
    Workloads,
    /// Addresses of Workloads and of the endpoints in EndpointSets.
    Endpoints,
    /// Node ports and health check node ports of Services.
    NodePorts,
    /// Load balancer addresses that Services request, whether they have received them or not: one for each IP
    /// family of a Service. An address that several Services share counts for each of them.
    LoadBalancerAddresses,
    /// Endpoints that health checks connect to. An endpoint of several Services counts for each of them.
    CheckedEndpoints,
}

impl QuotaResource {
    /// All resources, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Services,
        Self::EndpointSets,
        Self::Workloads,
        Self::Endpoints,
        Self::NodePorts,
        Self::LoadBalancerAddresses,
        Self::CheckedEndpoints,
    ];

    /// Returns the name of the resource in settings and responses, such as `node-ports`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::EndpointSets => "endpoint-sets",
            Self::Workloads => "workloads",
            Self::Endpoints => "endpoints",
            Self::NodePorts => "node-ports",
            Self::LoadBalancerAddresses => "load-balancer-addresses",
            Self::CheckedEndpoints => "checked-endpoints",
        }
    }

    /// Returns the name of the resource in messages, such as `node ports`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Services => "Services".to_owned(),
            Self::EndpointSets => "EndpointSets".to_owned(),
            Self::Workloads => "Workloads".to_owned(),
            Self::Endpoints | Self::NodePorts | Self::LoadBalancerAddresses | Self::CheckedEndpoints => {
                self.as_str().replace('-', " ")
            }
        }
    }
}

impl fmt::Display for QuotaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Amounts of resources that objects use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage([usize; QuotaResource::ALL.len()]);

impl Usage {
    /// Returns the amounts that one object uses. [`QuotaResource::CheckedEndpoints`] is zero, because it depends
    /// on several objects.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        let mut usage = Self::default();
        match &object.spec {
            Spec::Service(spec) => {
                usage.set(QuotaResource::Services, 1);
                usage.set(QuotaResource::NodePorts, node_ports(spec));
                let addresses = LoadBalancerRequest::of(object).map_or(0, |wanted| wanted.families().len());
                usage.set(QuotaResource::LoadBalancerAddresses, addresses);
            }
            Spec::EndpointSet(spec) => {
                usage.set(QuotaResource::EndpointSets, 1);
                usage.set(QuotaResource::Endpoints, spec.endpoints.len());
            }
            Spec::Workload(spec) => {
                usage.set(QuotaResource::Workloads, 1);
                usage.set(QuotaResource::Endpoints, spec.addresses.len());
            }
            Spec::Node(_)
            | Spec::Address(_)
            | Spec::AddressPool(_)
            | Spec::Advertisement(_)
            | Spec::BgpPeer(_)
            | Spec::BfdProfile(_)
            | Spec::DnsZone(_)
            | Spec::Certificate(_)
            | Spec::Gateway(_)
            | Spec::HttpRoute(_)
            | Spec::TlsRoute(_)
            | Spec::WorkloadNetwork(_)
            | Spec::NetworkPolicy(_)
            | Spec::EndpointHealth(_)
            | Spec::Block(_)
            | Spec::Attachment(_) => {}
        }
        usage
    }

    /// Returns the amount of a resource.
    #[must_use]
    pub const fn get(&self, resource: QuotaResource) -> usize {
        self.0[resource as usize]
    }

    /// Sets the amount of a resource.
    pub const fn set(&mut self, resource: QuotaResource, amount: usize) {
        self.0[resource as usize] = amount;
    }

    /// Adds the amounts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(amount, more)| *amount += more);
    }

    /// Subtracts the amounts of `other`, which were added before.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(amount, less)| *amount -= less);
    }

    /// True if all amounts are zero.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn node_ports(spec: &ServiceSpec) -> usize {
    let of_ports = spec.ports.iter().filter(|port| port.node_port.is_some()).count();
    of_ports + usize::from(spec.health_check_node_port.is_some())
}

/// Quotas of all namespaces. Without a setting, nothing is limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    default: BTreeMap<QuotaResource, usize>,
    /// Quotas of single namespaces, which take precedence; `None` removes a limit.
    overrides: BTreeMap<(Namespace, QuotaResource), Option<usize>>,
}

impl Quotas {
    /// Creates quotas from settings. If two settings concern the same resource and namespace, the later one is
    /// used.
    pub fn new(settings: impl IntoIterator<Item = QuotaSetting>) -> Self {
        let mut quotas = Self::default();
        for QuotaSetting { namespace, resource, limit } in settings {
            match (namespace, limit) {
                (Some(namespace), limit) => {
                    quotas.overrides.insert((namespace, resource), limit);
                }
                (None, Some(limit)) => {
                    quotas.default.insert(resource, limit);
                }
                (None, None) => {
                    quotas.default.remove(&resource);
                }
            }
        }
        quotas
    }

    /// Returns the limit of a resource in a namespace, or `None` if it is unlimited.
    #[must_use]
    pub fn limit(&self, namespace: &Namespace, resource: QuotaResource) -> Option<usize> {
        let own = self.overrides.get(&(namespace.clone(), resource));
        own.copied().unwrap_or_else(|| self.default.get(&resource).copied())
    }

    /// True if no namespace has a limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.default.is_empty() && self.overrides.values().all(Option::is_none)
    }
}

/// Setting of one quota, such as `node-ports=50` for every namespace, or `shop/node-ports=200` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSetting {
    /// Namespace that the setting concerns; `None` for every namespace without a setting of its own.
    pub namespace: Option<Namespace>,
    /// Limited resource.
    pub resource: QuotaResource,
    /// Maximum amount; `None` if it is unlimited.
    pub limit: Option<usize>,
}

impl FromStr for QuotaSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("must be RESOURCE=LIMIT or NAMESPACE/RESOURCE=LIMIT, not `{text}`");
        let (name, limit) = text.split_once('=').ok_or_else(form)?;
        let (namespace, name) = match name.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, name),
        };
        let namespace = namespace
            .map(|namespace| {
                Namespace::parse(namespace).map_err(|error| format!("namespace `{namespace}` {error}"))
            })
            .transpose()?;
        let resource = QuotaResource::ALL.into_iter().find(|one| one.as_str() == name);
        let resource = resource.ok_or_else(|| {
            let known = QuotaResource::ALL.map(QuotaResource::as_str).join(", ");
            format!("must limit one of {known}, not `{name}`")
        })?;
        let limit = match limit {
            "unlimited" => None,
            number => Some(number.parse().map_err(|_invalid| {
                format!("the limit of {resource} must be a number or `unlimited`, not `{number}`")
            })?),
        };
        Ok(Self { namespace, resource, limit })
    }
}

impl fmt::Display for QuotaSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        match self.limit {
            Some(limit) => write!(f, "{}={limit}", self.resource),
            None => write!(f, "{}=unlimited", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<QuotaSetting, String> {
        text.parse()
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        for text in ["services=100", "shop/node-ports=0", "shop/checked-endpoints=unlimited"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for (text, message) in [
            ("services", "must be RESOURCE=LIMIT or NAMESPACE/RESOURCE=LIMIT, not `services`"),
            ("pods=1", "must limit one of services, endpoint-sets,"),
            ("services=-1", "the limit of services must be a number or `unlimited`, not `-1`"),
            ("Shop/services=1", "namespace `Shop` "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn the_setting_of_a_namespace_takes_precedence() {
        let [shop, other] = ["shop", "other"].map(|name| Namespace::parse(name).unwrap());
        let settings = ["services=10", "shop/services=unlimited", "other/workloads=3"].map(parse);
        let quotas = Quotas::new(settings.map(Result::unwrap));
        let limit = |namespace, resource| quotas.limit(namespace, resource);
        assert_eq!(limit(&shop, QuotaResource::Services), None);
        assert_eq!(limit(&other, QuotaResource::Services), Some(10));
        assert_eq!(limit(&other, QuotaResource::Workloads), Some(3));
        assert_eq!(limit(&shop, QuotaResource::Workloads), None);
        assert!(!quotas.is_empty());
        assert!(Quotas::new([parse("shop/services=unlimited").unwrap()]).is_empty());
    }
}
