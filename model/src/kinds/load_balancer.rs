//! Pool, addresses and sharing key that a Service requests: the fields of `spec.loadBalancer` or, for each
//! absent field, the corresponding MetalLB annotation.

use std::net::IpAddr;

use crate::{
    kinds::{
        metadata::{Metadata, pointer},
        resource::{Object, ServiceKey},
        service::{IpFamilyPolicy, ServiceSpec, ServiceType},
    },
    primitives::{
        name::Name,
        net::IpFamily,
        violation::{
            Violation,
            ViolationCode::{Conflict, Invalid},
        },
    },
};

/// Prefixes under which MetalLB's annotations are read, the current one first.
const PREFIXES: [&str; 2] = ["metallb.io", "metallb.universe.tf"];
const ADDRESSES: &str = "loadBalancerIPs";
const POOL: &str = "address-pool";
const SHARING_KEY: &str = "allow-shared-ip";

/// Pool, addresses and sharing key that a Service of type LoadBalancer requests, from its fields and annotations.
#[derive(Debug, Clone)]
pub(crate) struct LoadBalancerRequest<'a> {
    pub(crate) key: ServiceKey,
    pub(crate) spec: &'a ServiceSpec,
    pub(crate) metadata: &'a Metadata,
    /// Name of the pool from which addresses are allocated; `None` permits all pools with `autoAssign`.
    pub(crate) pool: Option<Name>,
    /// Addresses that the Service requests explicitly, at most one per IP family.
    pub(crate) addresses: Vec<IpAddr>,
    /// Sharing key of the Service; Services with the same key may share an address.
    pub(crate) sharing_key: Option<Name>,
    addresses_at: Option<String>,
}

impl<'a> LoadBalancerRequest<'a> {
    /// Returns the request of a Service of type LoadBalancer, or `None` for other objects. Malformed
    /// annotations are ignored, because admission rejects writes that contain them.
    pub(crate) fn of(object: &'a Object) -> Option<Self> {
        let spec = object.as_service().filter(|spec| spec.service_type == ServiceType::LoadBalancer)?;
        let metadata = &object.metadata;
        let key = ServiceKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone() };
        let said = Annotations::of(metadata, &mut Vec::new());
        let fields = spec.load_balancer.as_deref().cloned().unwrap_or_default();
        let by_annotation = fields.addresses.is_empty();
        let (addresses_at, addresses) = said.addresses.filter(|_| by_annotation).unzip();
        Some(Self {
            key,
            spec,
            metadata,
            pool: fields.pool.or(said.pool.map(|(_, pool)| pool)),
            addresses: addresses.unwrap_or(fields.addresses),
            sharing_key: fields.sharing_key.or(said.sharing_key.map(|(_, key)| key)),
            addresses_at,
        })
    }

    /// Returns the IP families in which the Service needs a load balancer address: those of the requested
    /// addresses and, unless the policy is SingleStack, those of the Service.
    pub(crate) fn families(&self) -> Vec<IpFamily> {
        let named: Vec<_> = self.addresses.iter().map(|address| IpFamily::of(*address)).collect();
        let is_single = self.spec.ip_family_policy.is_none_or(|policy| policy == IpFamilyPolicy::SingleStack);
        let by_policy = match (is_single, named.is_empty()) {
            (true, true) => &self.spec.ip_families[..self.spec.ip_families.len().min(1)],
            (true, false) => &[],
            (false, _) => &self.spec.ip_families[..],
        };
        let mut families = named;
        for family in by_policy {
            if !families.contains(family) {
                families.push(*family);
            }
        }
        families
    }

    /// Returns the address that the Service requests explicitly in an IP family, if any.
    pub(crate) fn named(&self, family: IpFamily) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| IpFamily::of(*address) == family)
    }

    /// True if the Service may keep an assigned address: it requests exactly this address, or it needs an
    /// address of this IP family and requests no specific one.
    pub(crate) fn wants(&self, address: IpAddr) -> bool {
        let family = IpFamily::of(address);
        self.families().contains(&family) && self.named(family).is_none_or(|named| named == address)
    }

    /// Returns the IP families in which the Service needs a load balancer address but has none. `has` are the
    /// addresses that are already assigned to the Service.
    pub(crate) fn lacking(&self, has: impl Iterator<Item = IpAddr>) -> Vec<IpFamily> {
        let mut families = self.families();
        for address in has.filter(|address| self.wants(*address)) {
            families.retain(|family| *family != IpFamily::of(address));
        }
        families
    }

    /// True if the Service receives either all of its addresses or none (policy RequireDualStack).
    pub(crate) fn takes_all_or_none(&self) -> bool {
        self.spec.ip_family_policy == Some(IpFamilyPolicy::RequireDualStack)
    }

    /// Returns the JSON pointer to the field or annotation that requests `address`, for error messages.
    pub(crate) fn pointer_to(&self, address: IpAddr) -> String {
        let index = self.addresses.iter().position(|one| *one == address).unwrap_or_default();
        let by_field = || format!("/spec/loadBalancer/addresses/{index}");
        self.addresses_at.clone().unwrap_or_else(by_field)
    }
}

/// Parsed MetalLB annotations of a Service, each with its JSON pointer for error messages.
#[derive(Debug, Default)]
struct Annotations {
    pool: Option<(String, Name)>,
    addresses: Option<(String, Vec<IpAddr>)>,
    sharing_key: Option<(String, Name)>,
}

impl Annotations {
    fn of(metadata: &Metadata, found: &mut Vec<Violation>) -> Self {
        // Most Services have no annotations.
        if metadata.annotations.is_empty() {
            return Self::default();
        }
        Self {
            pool: read(metadata, POOL, found, |text| parse_name(text, "a pool")),
            addresses: read(metadata, ADDRESSES, found, parse_addresses),
            sharing_key: read(metadata, SHARING_KEY, found, |text| parse_name(text, "a sharing key")),
        }
    }
}

/// Parses the annotation `name`, which may have either of the two MetalLB prefixes. Returns its JSON pointer
/// and value, or `None` if it is absent, empty or invalid. Adds a violation if it is invalid, or if both
/// prefixes are used with different values.
fn read<T>(
    metadata: &Metadata,
    name: &str,
    found: &mut Vec<Violation>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<(String, T)> {
    let present = PREFIXES.iter().filter_map(|prefix| {
        let key = format!("{prefix}/{name}");
        let text = metadata.annotations.get(&key).map(|text| text.trim()).filter(|text| !text.is_empty())?;
        Some((pointer("/metadata/annotations", &key), text))
    });
    let present: Vec<_> = present.collect();
    let (at, text) = present.first()?;
    if let Some((at, _)) = present.iter().find(|(_, other)| other != text) {
        let message = format!("must equal `{}/{name}`, or be left out", PREFIXES[0]);
        found.push(Violation::new(at.clone(), Conflict, message));
    }
    match parse(text) {
        Ok(value) => Some((at.clone(), value)),
        Err(message) => {
            found.push(Violation::new(at.clone(), Invalid, message));
            None
        }
    }
}

fn parse_name(text: &str, object: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| format!("must be the name of {object}: the name {error}"))
}

fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let parse = |part: &str| {
        let part = part.trim();
        part.parse::<IpAddr>()
            .map_err(|_| format!("must be IP addresses separated by commas; `{part}` is not an address"))
    };
    let addresses = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    if let Some((address, why)) =
        addresses.iter().find_map(|one| crate::primitives::net::forbidden(*one).map(|why| (one, why)))
    {
        return Err(format!("must contain ordinary unicast addresses only; {address} is {why}"));
    }
    let of = |family| addresses.iter().filter(|one| IpFamily::of(**one) == family).count();
    if IpFamily::ALL.into_iter().any(|family| of(family) > 1) {
        return Err("must have at most one address per IP family".to_owned());
    }
    Ok(addresses)
}

/// Checks the MetalLB annotations of a Service of type LoadBalancer. Adds a violation for each annotation
/// that is invalid or contradicts the corresponding field.
pub(crate) fn check_annotations(spec: &ServiceSpec, metadata: &Metadata, found: &mut Vec<Violation>) {
    if spec.service_type != ServiceType::LoadBalancer {
        return;
    }
    let said = Annotations::of(metadata, found);
    let Some(fields) = &spec.load_balancer else { return };
    let mut differs = |at: &String, field: &str, value: String| {
        let message = format!("must equal spec.loadBalancer.{field}, which is {value}");
        let hint = "remove the annotation: the field replaces it";
        found.push(Violation::new(at.clone(), Conflict, message).hint(hint));
    };
    if let (Some((at, said)), Some(pool)) = (&said.pool, &fields.pool)
        && said != pool
    {
        differs(at, "pool", pool.to_string());
    }
    if let (Some((at, said)), Some(key)) = (&said.sharing_key, &fields.sharing_key)
        && said != key
    {
        differs(at, "sharingKey", key.to_string());
    }
    if let Some((at, said)) = &said.addresses
        && !fields.addresses.is_empty()
    {
        let sorted = |list: &[IpAddr]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        if sorted(said) != sorted(&fields.addresses) {
            let addresses: Vec<_> = fields.addresses.iter().map(ToString::to_string).collect();
            differs(at, "addresses", addresses.join(","));
        }
    }
}
