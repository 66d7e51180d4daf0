//! Parses the mapping of DNS names to Services. Does no I/O.

use std::{fmt, str::FromStr};

use model::primitives::name::{Label, Name, Namespace};

/// DNS name whose addresses are the endpoints of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Namespace of the Service; `None` means the value of `--namespace`.
    pub namespace: Option<Namespace>,
    /// Name of the Service that receives the endpoints.
    pub service: Label,
    /// Name of the Service port; `None` if the Service has a single port.
    pub port_name: Option<Label>,
    /// DNS name without a trailing dot.
    pub name: String,
    /// Endpoint port; by default the Service's `targetPort`. SRV records contain their own.
    pub port: Option<u16>,
}

impl Binding {
    /// True for an SRV name, whose records contain hosts and ports (RFC 2782).
    #[must_use]
    pub fn is_srv(&self) -> bool {
        self.name.starts_with('_')
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.service, self.name)
    }
}

impl FromStr for Binding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "must be [NAMESPACE/]SERVICE[:PORT-NAME]=DNS-NAME[:PORT]";
        let (service, target) = text.split_once('=').ok_or(form)?;
        let (namespace, service) = match service.split_once('/') {
            Some((namespace, service)) => (Some(namespace), service),
            None => (None, service),
        };
        let (service, port_name) = match service.split_once(':') {
            Some((service, port)) => (service, Some(port)),
            None => (service, None),
        };
        let (name, port) = match target.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (target, None),
        };
        let label = |what: &str, text: &str| {
            Label::parse(text).map_err(|error| format!("{form}; {what} `{text}` {error}"))
        };
        let port = port.map(|port| {
            let number = port.parse::<u16>().ok().filter(|port| *port > 0);
            number.ok_or_else(|| format!("{form}; the port must be a number from 1 to 65535, not `{port}`"))
        });
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // Host names are valid names here; labels of SRV names begin with underscores.
        let without_underscores: Vec<_> =
            name.split('.').map(|label| label.strip_prefix('_').unwrap_or(label)).collect();
        Name::parse(&without_underscores.join("."))
            .map_err(|error| format!("{form}; the DNS name `{name}` {error}"))?;
        let binding = Self {
            namespace: namespace.map(|text| label("the namespace", text)).transpose()?,
            service: label("the Service", service)?,
            port_name: port_name.map(|text| label("the port's name", text)).transpose()?,
            name,
            port: port.transpose()?,
        };
        if binding.is_srv() && binding.port.is_some() {
            return Err(format!("{form}; `{}` has SRV records, which contain the port", binding.name));
        }
        Ok(binding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_say_which_name_serves_which_service() {
        let binding: Binding = "shop/web:http=Backend.Example.com.:8080".parse().unwrap();
        assert_eq!((binding.namespace.unwrap().as_str(), binding.service.as_str()), ("shop", "web"));
        assert_eq!(
            (binding.port_name.unwrap().as_str(), binding.name.as_str(), binding.port),
            ("http", "backend.example.com", Some(8080))
        );
        let binding: Binding = "db=_pg._tcp.example.com".parse().unwrap();
        assert!(binding.is_srv() && binding.port.is_none());
        for bad in [
            "",
            "web",
            "web=",
            "=a",
            "web=a b",
            "web=a:0",
            "web=a:x",
            "Web=a",
            "web=_a._tcp.b:1",
            "a/b/c=d",
            "web=127.0.0.1:99999",
        ] {
            assert!(bad.parse::<Binding>().is_err(), "{bad}");
        }
    }
}
