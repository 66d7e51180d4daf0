//! What a Service asks of the load balancer: the fields of `spec.loadBalancer`, and where a field is absent the
//! annotation by which MetalLB's users ask for the same.

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

/// Prefixes of the annotations, the present one first.
const PREFIXES: [&str; 2] = ["metallb.io", "metallb.universe.tf"];
const ADDRESSES: &str = "loadBalancerIPs";
const POOL: &str = "address-pool";
const SHARING_KEY: &str = "allow-shared-ip";

/// What a Service of type LoadBalancer asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: ServiceKey,
    pub(crate) spec: &'a ServiceSpec,
    pub(crate) metadata: &'a Metadata,
    /// The pool to take addresses from.
    pub(crate) pool: Option<Name>,
    /// These addresses, at most one per family.
    pub(crate) addresses: Vec<IpAddr>,
    /// Services with the same key may share an address.
    pub(crate) sharing_key: Option<Name>,
    addresses_at: Option<String>,
}

impl<'a> Wanted<'a> {
    /// What an object asks for; `None` unless it is a Service of type LoadBalancer. Annotations that say nothing usable
    /// are passed over: no write with one is accepted.
    pub(crate) fn of(object: &'a Object) -> Option<Self> {
        let spec = object.as_service().filter(|spec| spec.service_type == ServiceType::LoadBalancer)?;
        let metadata = &object.metadata;
        let key = ServiceKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone() };
        let said = Said::of(metadata, &mut Vec::new());
        let fields = spec.load_balancer.clone().unwrap_or_default();
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

    /// The families in which it should have an address: those of the addresses that it names, and those of the Service,
    /// unless it is to have one only.
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

    /// The address of a family that it names.
    pub(crate) fn named(&self, family: IpFamily) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| IpFamily::of(*address) == family)
    }

    /// Whether it wants an address that it has: one that it names, or any of a family in which it names none.
    pub(crate) fn wants(&self, address: IpAddr) -> bool {
        let family = IpFamily::of(address);
        self.families().contains(&family) && self.named(family).is_none_or(|named| named == address)
    }

    /// The families in which it still lacks the address, by those it has.
    pub(crate) fn lacking(&self, has: impl Iterator<Item = IpAddr>) -> Vec<IpFamily> {
        let mut families = self.families();
        for address in has.filter(|address| self.wants(*address)) {
            families.retain(|family| *family != IpFamily::of(address));
        }
        families
    }

    /// Whether it takes all the addresses it lacks, or none.
    pub(crate) fn takes_all_or_none(&self) -> bool {
        self.spec.ip_family_policy == Some(IpFamilyPolicy::RequireDualStack)
    }

    /// The JSON pointer to a named address.
    pub(crate) fn pointer_to(&self, address: IpAddr) -> String {
        let index = self.addresses.iter().position(|one| *one == address).unwrap_or_default();
        let by_field = || format!("/spec/loadBalancer/addresses/{index}");
        self.addresses_at.clone().unwrap_or_else(by_field)
    }
}

/// What the annotations of a Service say, each with the pointer to it.
#[derive(Debug, Default)]
struct Said {
    pool: Option<(String, Name)>,
    addresses: Option<(String, Vec<IpAddr>)>,
    sharing_key: Option<(String, Name)>,
}

impl Said {
    fn of(metadata: &Metadata, found: &mut Vec<Violation>) -> Self {
        // Nearly every Service has none of these.
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

/// Reads one annotation under either prefix. An empty one says nothing, as MetalLB has it.
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
        let message = format!("must say the same as `{}/{name}`, or be left out", PREFIXES[0]);
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

fn parse_name(text: &str, what: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| format!("must be the name of {what}, which {error}"))
}

fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let parse = |part: &str| {
        let part = part.trim();
        part.parse::<IpAddr>().map_err(|_| format!("must be addresses with commas between, not `{part}`"))
    };
    let addresses = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    if let Some((address, why)) =
        addresses.iter().find_map(|one| crate::primitives::net::forbidden(*one).map(|why| (one, why)))
    {
        return Err(format!("must hold ordinary unicast addresses; {address} is {why}"));
    }
    let of = |family| addresses.iter().filter(|one| IpFamily::of(**one) == family).count();
    if IpFamily::ALL.into_iter().any(|family| of(family) > 1) {
        return Err("must have at most one address per IP family".to_owned());
    }
    Ok(addresses)
}

/// Checks the annotations of a Service of type LoadBalancer in themselves and against its fields.
pub(crate) fn check_annotations(spec: &ServiceSpec, metadata: &Metadata, found: &mut Vec<Violation>) {
    if spec.service_type != ServiceType::LoadBalancer {
        return;
    }
    let said = Said::of(metadata, found);
    let Some(fields) = &spec.load_balancer else { return };
    let mut differs = |at: &String, field: &str, value: String| {
        let message = format!("must agree with spec.loadBalancer.{field}, which is {value}");
        let hint = "leave the annotation out; the field says the same";
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
