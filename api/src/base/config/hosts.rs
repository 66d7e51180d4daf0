//! Host names by which clients may address the server.

use std::{collections::BTreeSet, net::IpAddr};

/// `Host` header values that the server accepts, as protection against DNS rebinding.
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
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_local_names_are_answered() {
        let hosts = Hosts::Local(["lab.example".to_owned()].into());
        for good in
            ["localhost", "localhost:7440", "127.0.0.1:7440", "[::1]:7440", "Lab.Example:80", "10.0.0.1"]
        {
            assert!(hosts.allow(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:7440", "localhost.evil.example", ""] {
            assert!(!hosts.allow(bad), "{bad}");
        }
        assert!(Hosts::Any.allow("evil.example"));
    }
}
