//! Host names by which clients may address an HTTP server, as protection against DNS rebinding.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

/// `Host` header values that a server accepts, as protection against DNS rebinding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// All names are accepted: the server does not listen on loopback, and no name is configured.
    Any,
    /// `localhost`, IP addresses and these names are accepted. Any other name indicates DNS rebinding: a web page
    /// has resolved its own host name to this server.
    Local(BTreeSet<String>),
}

impl Hosts {
    /// Returns true if a `Host` header, with or without port, is accepted.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let Self::Local(names) = self else { return true };
        if let Some(rest) = host.strip_prefix('[') {
            let address = rest.split_once(']').filter(|(_, port)| port.is_empty() || port.starts_with(':'));
            return address.is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_local_names_are_answered() {
        let hosts = Hosts::Local(["lab.example".to_owned()].into());
        for good in [
            "localhost",
            "localhost:7440",
            "127.0.0.1:7440",
            "[::1]:7440",
            "[::1]",
            "Lab.Example:80",
            "10.0.0.1",
        ] {
            assert!(hosts.allow(good), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:7440",
            "localhost.evil.example",
            "",
            "[::1]evil.example",
            "[::1",
            "[evil.example]",
            "[lab.example]:80",
        ] {
            assert!(!hosts.allow(bad), "{bad}");
        }
        assert!(Hosts::Any.allow("evil.example"));
    }
}
