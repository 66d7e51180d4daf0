//! Parses the labels of a container that configure its Service. Pure; every error has a message.

use std::collections::BTreeMap;

use model::{
    kinds::service::Protocol,
    primitives::name::{Label, Namespace},
};

/// Prefix of Tidegate's container labels.
pub(super) const PREFIX: &str = "tidegate.";
/// Maximum number of ports declared by one container.
const PORTS_MAX: usize = 32;

/// Configuration that a container requests by its `tidegate.` labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// Service that the container serves, if a label names one.
    pub(super) service: Option<Label>,
    pub(super) namespace: Option<Namespace>,
    pub(super) network: Option<String>,
    pub(super) address: Option<AddressKind>,
    pub(super) weight: Option<u16>,
    /// Service that the adapter creates, if labels declare ports.
    pub(super) declared: Option<DeclaredService>,
}

/// Choice of the address at which a container is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AddressKind {
    /// The container's own address; published ports if the engine blocks other machines from it and the ports
    /// are published
    Auto,
    /// The container's own address
    Container,
    /// The machine's address, with published ports
    Published,
}

/// Service that a container declares by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredService {
    /// Service type, as in `spec.type`.
    pub(super) service_type: String,
    pub(super) pool: Option<String>,
    pub(super) addresses: Vec<String>,
    /// Ports by name; the name is empty for an unnamed port.
    pub(super) ports: BTreeMap<String, DeclaredPort>,
}

/// Port of a Service that a container declares by labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeclaredPort {
    pub(super) port: u16,
    pub(super) target: u16,
    pub(super) protocol: Protocol,
}

/// Parses the `tidegate.` labels of a container. Returns `None` if the labels do not enable the container:
/// `tidegate.enable` is false, or is absent and no label names a Service.
pub(super) fn wish(labels: &BTreeMap<String, String>) -> Result<Option<Wish>, String> {
    let ours: BTreeMap<&str, &str> =
        labels.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.trim()))).collect();
    let is_enabled = match ours.get("enable") {
        None => ours.contains_key("service"),
        Some(&"true") => true,
        Some(&"false") => false,
        Some(other) => return Err(format!("label tidegate.enable must be true or false, not `{other}`")),
    };
    if !is_enabled {
        return Ok(None);
    }
    let mut wish =
        Wish { service: None, namespace: None, network: None, address: None, weight: None, declared: None };
    let mut declared = DeclaredService {
        service_type: "ClusterIP".to_owned(),
        pool: None,
        addresses: Vec::new(),
        ports: BTreeMap::new(),
    };
    let mut declares = None;
    for (key, value) in ours {
        let wrong = |what: &str| format!("label tidegate.{key} must be {what}, not `{value}`");
        match key {
            "enable" => {}
            "service" => {
                let (name, namespace) =
                    value.split_once(',').map_or((value, None), |(name, rest)| (name, Some(rest)));
                let named = "NAME or NAME,NAMESPACE";
                wish.service = Some(Label::parse(name.trim()).map_err(|_| wrong(named))?);
                wish.namespace = namespace
                    .map(|text| Namespace::parse(text.trim()))
                    .transpose()
                    .map_err(|_| wrong(named))?;
            }
            "network" => wish.network = Some(value.to_owned()),
            "weight" => wish.weight = Some(value.parse().map_err(|_| wrong("a number from 0 to 65535"))?),
            "address" => {
                wish.address = Some(address_kind(value).ok_or_else(|| wrong("auto, container or published"))?)
            }
            "type" => {
                declares = Some(key);
                declared.service_type = value.to_owned();
            }
            "pool" => {
                declares = Some(key);
                declared.pool = Some(value.to_owned());
            }
            "vip" => {
                declares = Some(key);
                declared.addresses = value.split(',').map(|text| text.trim().to_owned()).collect();
            }
            _ => {
                let name = match key.strip_prefix("port") {
                    Some("") => "",
                    Some(rest) if rest.starts_with('.') => rest.trim_start_matches('.'),
                    Some(_) | None => return Err(unknown(key)),
                };
                let port =
                    declared_port(value).ok_or_else(|| wrong("PORT, PORT:TARGET or PORT:TARGET/PROTOCOL"))?;
                declared.ports.insert(name.to_owned(), port);
            }
        }
    }
    if declared.ports.len() > PORTS_MAX {
        return Err(format!(
            "at most {PORTS_MAX} labels tidegate.port.NAME are read, found {}",
            declared.ports.len()
        ));
    }
    if let (Some(key), true) = (declares, declared.ports.is_empty()) {
        return Err(format!(
            "label tidegate.{key} needs tidegate.port, because no Service is created \
                            without it"
        ));
    }
    if !declared.ports.is_empty() {
        if wish.service.is_none() {
            return Err("label tidegate.port needs tidegate.service: the name of the Service".to_owned());
        }
        wish.declared = Some(declared);
    }
    Ok(Some(wish))
}

fn unknown(key: &str) -> String {
    format!(
        "unknown label tidegate.{key}; known labels are service, enable, network, address, weight, port, \
         port.NAME, type, pool, vip"
    )
}

fn address_kind(text: &str) -> Option<AddressKind> {
    match text {
        "auto" => Some(AddressKind::Auto),
        "container" => Some(AddressKind::Container),
        "published" => Some(AddressKind::Published),
        _ => None,
    }
}

/// Parses a declared port in the form `PORT[:TARGET-PORT][/PROTOCOL]`, such as `80`, `80:8080` or
/// `53:5353/udp`. The target port is `PORT` and the protocol TCP by default.
fn declared_port(text: &str) -> Option<DeclaredPort> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let (port, target) = ports.split_once(':').unwrap_or((ports, ports));
    Some(DeclaredPort { port: number(port)?, target: number(target)?, protocol })
}

/// Parses the name or number of a signal that ends a process, and returns the number. Returns `None` for
/// other names.
pub(super) fn ending_signal(text: &str) -> Option<u8> {
    let name = text.trim().to_ascii_uppercase();
    match name.strip_prefix("SIG").unwrap_or(&name) {
        "INT" => Some(2),
        "QUIT" => Some(3),
        "KILL" => Some(9),
        "TERM" => Some(15),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(labels: &[(&str, &str)]) -> Result<Option<Wish>, String> {
        wish(&labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn labels_say_which_service_a_container_serves_and_which_to_make() {
        let wish = wish_of(&[
            ("tidegate.service", "web,shop"),
            ("tidegate.weight", "3"),
            ("tidegate.port.http", "80:8080"),
            ("tidegate.port.dns", "53/UDP"),
            ("tidegate.type", "LoadBalancer"),
            ("com.example.other", "x"),
        ]);
        let wish = wish.unwrap().unwrap();
        assert_eq!((wish.service.unwrap().as_str(), wish.namespace.unwrap().as_str()), ("web", "shop"));
        assert_eq!(wish.weight, Some(3));
        let ports = wish.declared.unwrap().ports;
        assert_eq!(ports["http"], DeclaredPort { port: 80, target: 8080, protocol: Protocol::Tcp });
        assert_eq!(ports["dns"], DeclaredPort { port: 53, target: 53, protocol: Protocol::Udp });
        assert_eq!(wish_of(&[("com.example", "x"), ("tidegate.weight", "nonsense")]), Ok(None));
        assert_eq!(wish_of(&[("tidegate.service", "web"), ("tidegate.enable", "false")]), Ok(None));
    }

    #[test]
    fn every_mistake_names_the_label_and_what_it_must_be() {
        for (labels, expected) in [
            (vec![("tidegate.service", "Web")], "tidegate.service must be NAME or NAME,NAMESPACE"),
            (vec![("tidegate.service", "w"), ("tidegate.wieght", "1")], "unknown label tidegate.wieght"),
            (vec![("tidegate.service", "w"), ("tidegate.weight", "-1")], "tidegate.weight must be a number"),
            (vec![("tidegate.service", "w"), ("tidegate.port", "0")], "tidegate.port must be PORT"),
            (vec![("tidegate.service", "w"), ("tidegate.port.x", "80/x")], "tidegate.port.x must be PORT"),
            (vec![("tidegate.service", "w"), ("tidegate.pool", "p")], "tidegate.pool needs tidegate.port"),
            (vec![("tidegate.enable", "yes")], "tidegate.enable must be true or false"),
            (
                vec![("tidegate.enable", "true"), ("tidegate.port", "1")],
                "tidegate.port needs tidegate.service",
            ),
            (vec![("tidegate.service", "w"), ("tidegate.address", "x")], "tidegate.address must be auto"),
        ] {
            let found = wish_of(&labels).unwrap_err();
            assert!(found.contains(expected), "{labels:?}: {found}");
        }
    }
}
