//! Under which names the server lets itself be called.

use std::{collections::BTreeSet, net::IpAddr};

/// Which `Host` headers are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// All of them: the server does not listen on loopback, and nobody has named any.
    Any,
    /// `localhost`, addresses, and these names. On loopback, other names mean that a web page has made a browser call
    /// this server under the page's own name.
    Local(BTreeSet<String>),
}

impl Hosts {
    /// Whether a `Host` header, with or without port, is answered.
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
