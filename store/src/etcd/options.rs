//! etcd connection options: members, prefix, TLS and user. Secrets are never displayed.

use std::fmt;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::{
    link::{CONNECT_TIMEOUT, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT},
    past::GROWTH_BYTES_MAX,
};
use crate::OpenError;

/// Default prefix of all keys in etcd.
pub const ETCD_PREFIX_DEFAULT: &str = "/tidegate/";
/// Default number of commits in the log, not yet folded into the objects, that triggers folding. Lower values
/// rewrite frequently changed objects more often; higher values make startup read more of the log.
pub const ETCD_FOLD_AFTER_DEFAULT: usize = 1_000;
/// Maximum number of members; etcd advises against more than seven.
const MEMBERS_MAX: usize = 16;

/// Connection and maintenance options of an etcd store.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Prefix of all keys. Different prefixes are different stores.
    pub prefix: String,
    /// PEM certificates of the CAs that issued the members' certificates. Required for members with `https:`,
    /// and not permitted otherwise.
    pub ca_pem: Option<Vec<u8>>,
    /// Client certificate and its private key, each as PEM; `None` connects without a client certificate.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// User name and password; `None` connects without authentication by password.
    pub user: Option<(String, String)>,
    /// Number of commits in the log that triggers folding, which moves their changes to the stored objects.
    pub fold_after: usize,
    /// Growth of etcd's database in bytes after which etcd's history is compacted to the last 10 seconds.
    pub growth_bytes_max: u64,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            prefix: ETCD_PREFIX_DEFAULT.to_owned(),
            ca_pem: None,
            identity_pem: None,
            user: None,
            fold_after: ETCD_FOLD_AFTER_DEFAULT,
            growth_bytes_max: GROWTH_BYTES_MAX,
        }
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, ca_pem, identity_pem, user, fold_after, growth_bytes_max } = self;
        f.debug_struct("EtcdOptions")
            .field("prefix", prefix)
            .field("has_ca", &ca_pem.is_some())
            .field("has_identity", &identity_pem.is_some())
            .field("user", &user.as_ref().map(|(name, _)| name))
            .field("fold_after", fold_after)
            .field("growth_bytes_max", growth_bytes_max)
            .finish()
    }
}

/// Validated member URLs and connection options. Not `Debug`, because the client library's options would
/// print the password.
pub(super) struct Reach {
    /// URLs of the members of the etcd cluster.
    pub(super) members: Vec<String>,
    pub(super) connect: ConnectOptions,
}

/// Parses the member list of an `etcd:` address and validates it together with the options.
pub(super) fn check(members: &str, options: &EtcdOptions) -> Result<Reach, OpenError> {
    let EtcdOptions { prefix, ca_pem, identity_pem, user, fold_after: _, growth_bytes_max: _ } = options;
    // Errors do not repeat the text, because it may contain a password.
    let refuse = |reason: &str| OpenError::Etcd(reason.to_owned());
    let members: Vec<_> = members.split(',').map(|member| member.trim_end_matches('/').to_owned()).collect();
    if members.len() > MEMBERS_MAX {
        return Err(refuse("more than 16 members are listed; list only those that clients should use"));
    }
    if members.iter().any(|member| member.contains('@')) {
        return Err(refuse("a URL contains a user; use --etcd-user and --etcd-password-file"));
    }
    let is_tls = |member: &String| member.starts_with("https://");
    let is_url = |member: &String| {
        let rest = member.strip_prefix("https://").or_else(|| member.strip_prefix("http://"));
        rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', ' ']))
    };
    if !members.iter().all(is_url) {
        return Err(refuse("write etcd:http://HOST:2379,http://HOST:2379 with one URL per member"));
    }
    let is_https = members.iter().all(is_tls);
    if !is_https && members.iter().any(is_tls) {
        return Err(refuse("some URLs use http: and some https:; use the same scheme for all"));
    }
    if is_https && ca_pem.is_none() {
        return Err(refuse("https: requires the CA of the members' certificates: --etcd-ca-file"));
    }
    if !is_https && (ca_pem.is_some() || identity_pem.is_some()) {
        return Err(refuse("certificates are given, but the URLs use http:; use https:"));
    }
    let is_prefix = prefix.starts_with('/') && prefix.ends_with('/') && prefix.len() > 1;
    if !is_prefix || prefix.contains("//") || prefix.len() > 200 {
        return Err(refuse("--etcd-prefix must begin and end with a slash, such as /tidegate/"));
    }
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_TIMEOUT)
        .with_keep_alive_while_idle(true)
        .with_auto_token_refresh(true);
    if let Some(ca) = ca_pem {
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((certificate, key)) = identity_pem {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        connect = connect.with_tls(tls);
    }
    if let Some((name, password)) = user {
        connect = connect.with_user(name, password);
    }
    Ok(Reach { members, connect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_members_are_checked_with_the_options() {
        let plain = EtcdOptions::default();
        let tls = EtcdOptions { ca_pem: Some(Vec::new()), ..EtcdOptions::default() };
        let bare = EtcdOptions { prefix: "tidegate".to_owned(), ..EtcdOptions::default() };
        let good = check("http://a:2379,http://[::1]:2379/", &plain).unwrap();
        assert_eq!(good.members, ["http://a:2379", "http://[::1]:2379"]);
        assert!(check("https://a:2379", &tls).is_ok());
        for (members, options, expected) in [
            ("", &plain, "write etcd:http"),
            ("a:2379", &plain, "write etcd:http"),
            ("http://a,", &plain, "write etcd:http"),
            ("http://a/x", &plain, "write etcd:http"),
            ("http://a,https://b", &plain, "the same scheme"),
            ("https://a", &plain, "--etcd-ca-file"),
            ("http://a", &tls, "use https:"),
            ("http://a", &bare, "--etcd-prefix"),
            ("http://jo:hush@a", &plain, "--etcd-user"),
        ] {
            let refusal = check(members, options).err().expect("is refused").to_string();
            assert!(refusal.contains(expected) && !refusal.contains("hush"), "{members}: {refusal}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = EtcdOptions {
            user: Some(("jo".to_owned(), "hush".to_owned())),
            identity_pem: Some((b"hush".to_vec(), b"hush".to_vec())),
            ..EtcdOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("jo") && !shown.contains("hush") && !shown.contains("104"), "{shown}");
    }
}
