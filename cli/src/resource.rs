//! Resource types of the command line, with their names and aliases.

use std::str::FromStr;

use model::{
    kinds::{address, block::block_name, resource::Kind},
    primitives::name::{Name, Namespace},
};

/// A resource type of `get` and `describe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Objects of one stored kind.
    Object(Kind),
    /// Endpoints computed by the server for each Service.
    Endpoints,
}

/// Names of each resource in display order: plural, singular and short name.
const WORDS: [(Resource, [&str; 3]); Kind::ALL.len() + 1] = [
    (Resource::Object(Kind::Service), ["services", "service", "svc"]),
    (Resource::Object(Kind::EndpointSet), ["endpointsets", "endpointset", "eps"]),
    (Resource::Object(Kind::Workload), ["workloads", "workload", "wl"]),
    (Resource::Object(Kind::Node), ["nodes", "node", "no"]),
    (Resource::Object(Kind::AddressPool), ["addresspools", "addresspool", "pool"]),
    (Resource::Object(Kind::Advertisement), ["advertisements", "advertisement", "adv"]),
    (Resource::Object(Kind::BgpPeer), ["bgppeers", "bgppeer", "peer"]),
    (Resource::Object(Kind::BfdProfile), ["bfdprofiles", "bfdprofile", "bfd"]),
    (Resource::Object(Kind::DnsZone), ["dnszones", "dnszone", "zone"]),
    (Resource::Object(Kind::Certificate), ["certificates", "certificate", "cert"]),
    (Resource::Object(Kind::Gateway), ["gateways", "gateway", "gw"]),
    (Resource::Object(Kind::HttpRoute), ["httproutes", "httproute", "route"]),
    (Resource::Object(Kind::TlsRoute), ["tlsroutes", "tlsroute", "tls"]),
    (Resource::Object(Kind::WorkloadNetwork), ["workloadnetworks", "workloadnetwork", "wn"]),
    (Resource::Object(Kind::NetworkPolicy), ["networkpolicies", "networkpolicy", "netpol"]),
    (Resource::Object(Kind::Address), ["addresses", "address", "addr"]),
    (Resource::Object(Kind::EndpointHealth), ["endpointhealths", "endpointhealth", "eph"]),
    (Resource::Object(Kind::Block), ["blocks", "block", "blk"]),
    (Resource::Object(Kind::Attachment), ["attachments", "attachment", "att"]),
    (Resource::Endpoints, ["endpoints", "endpoint", "ep"]),
];

/// Returns each resource in display order with its names: plural, singular and short name.
pub(crate) const fn words() -> &'static [(Resource, [&'static str; 3])] {
    &WORDS
}

impl Resource {
    /// Returns the singular name, as in `service/web`.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Object(_) => {
                let (_, [_, singular, _]) = WORDS
                    .iter()
                    .find(|(resource, _)| *resource == self)
                    .expect("the list contains every resource");
                singular
            }
            Self::Endpoints => "endpoints",
        }
    }

    /// Returns the plural name, as in URL paths.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Object(kind) => kind.plural(),
            Self::Endpoints => "endpoints",
        }
    }

    /// Returns true if the resource is namespaced.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Object(kind) => kind.is_namespaced(),
            Self::Endpoints => true,
        }
    }
}

impl FromStr for Resource {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        let lower = word.to_ascii_lowercase();
        let is_word = |words: &[&str; 3]| {
            // Also accepts plurals of short names, such as `pools` and `svcs`.
            words.contains(&lower.as_str()) || lower.strip_suffix('s') == Some(words[2])
        };
        // The name in Kubernetes of rules for host names and paths.
        if ["ingresses", "ingress", "ing"].contains(&lower.as_str()) {
            return Ok(Self::Object(Kind::HttpRoute));
        }
        let found = WORDS.iter().find(|(_, words)| is_word(words));
        found.map(|(resource, _)| *resource).ok_or_else(|| unknown(word))
    }
}

/// Parsed `KIND` argument, such as `svc`, `svc,eps` or `all`, or `svc/web` for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Selected resources; never empty.
    pub resources: Vec<Resource>,
    /// Name after the slash, as in `svc/web`; `None` selects all objects.
    pub name: Option<String>,
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((kind, name)) = text.split_once('/') {
            return Ok(Self { resources: vec![kind.parse()?], name: Some(name.to_owned()) });
        }
        let mut resources = Vec::new();
        for word in text.split(',') {
            let more = if word.eq_ignore_ascii_case("all") { all() } else { vec![word.parse()?] };
            resources.extend(
                more.into_iter().filter(|resource| !resources.contains(resource)).collect::<Vec<_>>(),
            );
        }
        Ok(Self { resources, name: None })
    }
}

/// Returns every user-writable kind in display order; kinds managed by the server are excluded.
fn all() -> Vec<Resource> {
    let is_written_by_users =
        |resource: &Resource| matches!(resource, Resource::Object(kind) if !kind.is_kept_by_server());
    WORDS.iter().map(|(resource, _)| *resource).filter(is_written_by_users).collect()
}

/// Parses an object name given on the command line; an address may be given in any textual form.
///
/// # Errors
/// Returns a message if the name is invalid.
pub(crate) fn parse_name(resource: Resource, text: &str) -> Result<Name, String> {
    match resource {
        Resource::Object(Kind::Address) => address::address_of(text)
            .map(address::name_of)
            .ok_or_else(|| format!("`{text}` is not an address; write it as 192.0.2.1 or 2001:db8::1")),
        Resource::Object(Kind::Block) if text.contains('/') => text
            .parse()
            .map(|cidr| block_name(&cidr))
            .map_err(|_| format!("`{text}` is not a block; write it as 10.64.0.0/26")),
        Resource::Object(_) | Resource::Endpoints => {
            Name::parse(text).map_err(|error| format!("`{text}` is not a valid name: {error}"))
        }
    }
}

/// Name of a Service as given on the command line: `web`, or `shop/web` with its namespace, as tables print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName {
    /// Namespace before the slash; takes precedence over `--namespace`.
    pub namespace: Option<Namespace>,
    /// Name within the namespace.
    pub name: Name,
}

impl ServiceName {
    /// Parses `NAME` or `NAMESPACE/NAME`.
    ///
    /// # Errors
    /// Returns a message if a part is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(parse_namespace(namespace)?), name),
            None => (None, text),
        };
        Ok(Self { namespace, name: Name::parse(name).map_err(|error| error.to_string())? })
    }

    /// Returns the namespace, which is `default` if the name contains none, and the name.
    #[must_use]
    pub fn or_in(self, default: Namespace) -> (Namespace, Name) {
        (self.namespace.unwrap_or(default), self.name)
    }
}

fn parse_namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|error| format!("`{text}` is not a valid namespace: {error}"))
}

/// Parses the name of an object, which may be `NAMESPACE/NAME` if the resource is namespaced. Returns the namespace, which
/// is `default` if the name contains none, and the name.
///
/// # Errors
/// Returns a message if a part is invalid.
pub(crate) fn parse_located(
    resource: Resource,
    text: &str,
    default: &Namespace,
) -> Result<(Namespace, Name), String> {
    match text.split_once('/').filter(|_| resource.is_namespaced()) {
        Some((namespace, name)) => Ok((parse_namespace(namespace)?, parse_name(resource, name)?)),
        None => Ok((default.clone(), parse_name(resource, text)?)),
    }
}

/// Parses the kind of a stored object, such as `svc`. Rejects `endpoints`, which the server computes and does
/// not store.
///
/// # Errors
/// Returns the list of kinds if `word` is not one.
pub(crate) fn parse_kind(word: &str) -> Result<Kind, String> {
    match word.parse()? {
        Resource::Object(kind) => Ok(kind),
        Resource::Endpoints => {
            Err("endpoints are computed from Services, Workloads and EndpointSets; use one of these kinds"
                .to_owned())
        }
    }
}

fn unknown(word: &str) -> String {
    if let Some(similar) = similar(word) {
        return format!("`{word}` is not a kind; did you mean `{similar}`?");
    }
    let known: Vec<String> =
        WORDS.iter().map(|(_, [plural, _, short])| format!("{plural} ({short})")).collect();
    format!("`{word}` is not a kind; available kinds: {}", known.join(", "))
}

/// Returns the name of a kind that differs from a word by at most two characters. Short words are similar to
/// everything, so they have none.
fn similar(word: &str) -> Option<&'static str> {
    const SHORTEST: usize = 5;
    let lower = word.to_ascii_lowercase();
    let names = WORDS.iter().flat_map(|(_, [plural, singular, _])| [*plural, *singular]);
    let near = names.map(|name| (distance(&lower, name), name)).filter(|(distance, _)| *distance <= 2);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name).filter(|_| word.len() >= SHORTEST)
}

/// Returns the number of characters to insert, delete or replace that turns one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, character) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_kind_is_answered_with_the_similar_one() {
        for (word, meant) in [
            ("servces", "services"),
            ("Serivces", "services"),
            ("adresspool", "addresspool"),
            ("nodess", "nodes"),
        ] {
            let error = word.parse::<Resource>().unwrap_err();
            assert!(error.ends_with(&format!("did you mean `{meant}`?")), "{error}");
        }
        for word in ["pods", "xy", "deployment"] {
            assert!(word.parse::<Resource>().unwrap_err().contains("available kinds"), "{word}");
        }
    }

    #[test]
    fn every_word_names_its_kind_in_any_case() {
        for kind in Kind::ALL {
            for word in [kind.as_str(), kind.plural(), Resource::Object(kind).singular()] {
                assert_eq!(word.parse(), Ok(Resource::Object(kind)), "{word}");
            }
        }
        assert_eq!("ep".parse(), Ok(Resource::Endpoints));
        assert_eq!("pools".parse(), Ok(Resource::Object(Kind::AddressPool)));
        assert_eq!("ingress".parse(), Ok(Resource::Object(Kind::HttpRoute)));
    }

    #[test]
    fn an_unknown_kind_is_answered_with_the_known_ones() {
        let error = "pods".parse::<Resource>().unwrap_err();
        assert!(error.contains("`pods` is not a kind") && error.contains("services (svc)"), "{error}");
        assert!(parse_kind("ep").unwrap_err().contains("computed"));
    }

    #[test]
    fn addresses_are_named_as_people_write_them_or_by_their_records() {
        let address = Resource::Object(Kind::Address);
        for text in ["2001:db8::1", "2001:0DB8:0::1", "2001-0db8-0000-0000-0000-0000-0000-0001"] {
            let name = parse_name(address, text).unwrap();
            assert_eq!(name.as_str(), "2001-0db8-0000-0000-0000-0000-0000-0001", "{text}");
        }
        let block = parse_name(Resource::Object(Kind::Block), "10.64.0.0/26").unwrap();
        assert_eq!(block.as_str(), "10.64.0.0-26");
        assert_eq!(parse_name(address, "192.0.2.1").unwrap().as_str(), "192.0.2.1");
        assert!(parse_name(address, "web").unwrap_err().contains("write it as 192.0.2.1"));
        assert!(parse_name(Resource::Object(Kind::Service), "web_").unwrap_err().contains(
            "`web_` is not a \
                                                                                       valid name"
        ));
        assert_eq!("addr/2001:db8::1".parse::<Target>().unwrap().name.as_deref(), Some("2001:db8::1"));
    }

    #[test]
    fn a_namespace_may_precede_the_name() {
        let default = Namespace::parse("default").unwrap();
        let parsed = |resource, text| {
            parse_located(resource, text, &default).map(|(namespace, name)| format!("{namespace} {name}"))
        };
        let service = Resource::Object(Kind::Service);
        assert_eq!(parsed(service, "shop/web").as_deref(), Ok("shop web"));
        assert_eq!(parsed(service, "web").as_deref(), Ok("default web"));
        for bad in ["shop/", "/web", "a/b/c", "Shop/web"] {
            assert!(parsed(service, bad).is_err() && ServiceName::parse(bad).is_err(), "{bad}");
        }
        assert!(parsed(Resource::Object(Kind::Node), "shop/node1").is_err(), "Nodes have no namespace");
        let (namespace, name) = ServiceName::parse("shop/web").unwrap().or_in(default);
        assert_eq!((namespace.as_str(), name.as_str()), ("shop", "web"));
    }

    #[test]
    fn targets_are_lists_of_kinds_or_one_object() {
        let target: Target = "svc,all".parse().unwrap();
        assert_eq!((target.resources.len(), target.name), (15, None));
        assert_eq!("svc/web".parse::<Target>().unwrap().name.as_deref(), Some("web"));
        for bad in ["", "svc,", "all/web", "svc,eps/web"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
