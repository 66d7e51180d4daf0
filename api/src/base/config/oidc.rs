//! Settings of OpenID Connect: the issuer whose ID tokens authenticate users, the roles of its groups, and the login to the status
//! page.

mod page;

use std::{collections::BTreeSet, path::PathBuf, str::FromStr};

use clap::Args;
use model::primitives::name::{Label, Namespace};
use reqwest::Url;
use rustls::RootCertStore;
use tls_trust::Trust;

pub(crate) use self::page::{CALLBACK_PATH, LOGIN_PATH};
pub use self::page::{OidcPageFlags, OidcPageSettings};

/// Claim with the name of a user by default. The issuer never gives it to another user (OpenID Connect Core, 5.7).
const USERNAME_CLAIM_DEFAULT: &str = "sub";
/// Claim with the groups of a user by default.
const GROUPS_CLAIM_DEFAULT: &str = "groups";
/// Maximum number of roles of groups.
const GROUPS_MAX: usize = 256;
/// Name of the built-in role of agents, which are authenticated by certificate only.
const AGENT: &str = "agent";

/// Flags for OpenID Connect.
#[derive(Debug, Clone, Default, Args)]
pub struct OidcFlags {
    /// OpenID Connect issuer whose ID tokens authenticate users, exactly as in the claim `iss` of the tokens
    #[arg(long, env = "TIDEGATE_OIDC_ISSUER", value_name = "URL")]
    pub oidc_issuer: Option<String>,
    /// Client that the issuer has for Tidegate. ID tokens for other clients are rejected
    #[arg(long, env = "TIDEGATE_OIDC_CLIENT_ID", value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// PEM file with the CA certificates to verify the issuer with [default: the system's CA certificates]
    #[arg(long, env = "TIDEGATE_OIDC_CA_FILE", value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim of ID tokens with the name of the user, recorded as the author of changes [default: sub]
    #[arg(long, env = "TIDEGATE_OIDC_USERNAME_CLAIM", value_name = "CLAIM")]
    pub oidc_username_claim: Option<String>,
    /// Claim of ID tokens with the groups of the user: a list of texts or one text [default: groups]
    #[arg(long, env = "TIDEGATE_OIDC_GROUPS_CLAIM", value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// Role of the users of a group: ROLE=GROUP, or NAMESPACE/ROLE=GROUP for one namespace; may be repeated. In the variable, a
    /// line for each
    #[arg(long, env = "TIDEGATE_OIDC_GROUP", value_name = "ROLE=GROUP", value_delimiter = '\n')]
    pub oidc_group: Vec<GroupRole>,
    /// Flags for the login to the status page.
    #[command(flatten)]
    pub page: OidcPageFlags,
}

/// Role that the users of a group have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRole {
    /// Name of the group in the groups claim.
    pub group: String,
    /// Name of the role. It need not exist; a role that does not exist grants nothing.
    pub role: Label,
    /// Namespace to which the role is limited; `None` for no limit.
    pub namespace: Option<Namespace>,
}

impl GroupRole {
    /// Returns the namespaces to which the role is limited; `None` for no limit.
    #[must_use]
    pub fn namespaces(&self) -> Option<BTreeSet<Namespace>> {
        self.namespace.as_ref().map(|namespace| [namespace.clone()].into())
    }
}

impl FromStr for GroupRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("must be ROLE=GROUP or NAMESPACE/ROLE=GROUP, not `{text}`");
        let (role, group) = text.split_once('=').ok_or_else(form)?;
        let (namespace, role) =
            role.split_once('/').map_or((None, role), |(namespace, role)| (Some(namespace), role));
        let namespace = namespace.map(Namespace::parse).transpose().map_err(|error| error.to_string())?;
        let role = Label::parse(role).map_err(|error| error.to_string())?;
        if group.is_empty() {
            return Err(form());
        }
        if role.as_str() == AGENT {
            return Err(
                "users cannot have the role agent: agents are authenticated by certificate".to_owned()
            );
        }
        Ok(Self { group: group.to_owned(), role, namespace })
    }
}

/// Settings of OpenID Connect.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// Issuer: an `https` URL, or an `http` URL of this machine.
    pub issuer: String,
    /// Id of the client that ID tokens must be issued for.
    pub client_id: String,
    /// CA certificates to verify the issuer with.
    pub roots: RootCertStore,
    /// Claim with the name of the user.
    pub username_claim: String,
    /// Claim with the groups of the user.
    pub groups_claim: String,
    /// Roles of groups; at most 256.
    pub group_roles: Vec<GroupRole>,
    /// Login to the status page; `None` if users log in to it with a token only.
    pub page: Option<OidcPageSettings>,
}

/// Reason why the settings of OpenID Connect are rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOidc {
    /// Issuer that is not a usable URL.
    #[error(
        "--oidc-issuer must be an https:// URL without user name, query and fragment, not `{0}`; http:// is allowed on this \
         machine only"
    )]
    Issuer(String),
    /// Setting without an issuer or an issuer without a client.
    #[error("{0} requires {1}")]
    Missing(&'static str, &'static str),
    /// Empty client or claim.
    #[error("{0} must not be empty")]
    Empty(&'static str),
    /// Address of the status page that is not a usable URL.
    #[error(
        "--oidc-page-url must be https://HOST or https://HOST:PORT without a path, not `{0}`; http:// is allowed on this machine only"
    )]
    PageUrl(String),
    /// File of the client secret that cannot be read.
    #[error("--oidc-page-client-secret-file {}: {cause}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        cause: std::io::Error,
    },
    /// File of the client secret without a usable secret.
    #[error(
        "--oidc-page-client-secret-file {} must contain the secret of the client: 1 to 1024 characters in one line", .0.display()
    )]
    Secret(PathBuf),
    /// More roles of groups than permitted.
    #[error("--oidc-group may be given {GROUPS_MAX} times")]
    TooMany,
    /// CA file that cannot be used.
    #[error("--oidc-ca-file {}: {cause}", path.display())]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        cause: tls_trust::Untrusted,
    },
}

impl OidcSettings {
    /// Checks the flags and reads the CA file. Returns `None` if no issuer is configured.
    ///
    /// # Errors
    /// Returns the first invalid setting, with the flag to change.
    pub fn new(flags: OidcFlags) -> Result<Option<Self>, InvalidOidc> {
        let OidcFlags {
            oidc_issuer,
            oidc_client_id,
            oidc_ca_file,
            oidc_username_claim,
            oidc_groups_claim,
            oidc_group,
            page,
        } = flags;
        let Some(issuer) = oidc_issuer else {
            let orphan = [
                ("--oidc-client-id", oidc_client_id.is_some()),
                ("--oidc-ca-file", oidc_ca_file.is_some()),
                ("--oidc-username-claim", oidc_username_claim.is_some()),
                ("--oidc-groups-claim", oidc_groups_claim.is_some()),
                ("--oidc-group", !oidc_group.is_empty()),
            ];
            let orphan = orphan.into_iter().chain(page.given());
            let orphan = orphan.filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).next();
            return orphan.map_or(Ok(None), |flag| Err(InvalidOidc::Missing(flag, "--oidc-issuer")));
        };
        let is_usable = Url::parse(&issuer).is_ok_and(|url| is_private(&url) && is_plain(&url));
        if !is_usable {
            return Err(InvalidOidc::Issuer(without_user(&issuer)));
        }
        let client_id = oidc_client_id.ok_or(InvalidOidc::Missing("--oidc-issuer", "--oidc-client-id"))?;
        let username_claim = oidc_username_claim.unwrap_or_else(|| USERNAME_CLAIM_DEFAULT.to_owned());
        let groups_claim = oidc_groups_claim.unwrap_or_else(|| GROUPS_CLAIM_DEFAULT.to_owned());
        for (flag, text) in [
            ("--oidc-client-id", &client_id),
            ("--oidc-username-claim", &username_claim),
            ("--oidc-groups-claim", &groups_claim),
        ] {
            if text.trim().is_empty() {
                return Err(InvalidOidc::Empty(flag));
            }
        }
        if oidc_group.len() > GROUPS_MAX {
            return Err(InvalidOidc::TooMany);
        }
        let trust = match oidc_ca_file {
            None => Trust::system(),
            Some(path) => Trust::file(&path).map_err(|cause| InvalidOidc::Authorities { path, cause })?,
        };
        let roots = match trust {
            Trust::Roots(roots) => roots,
            Trust::Pin(_) => RootCertStore::empty(),
        };
        let page = OidcPageSettings::new(page, &client_id)?;
        let group_roles = oidc_group;
        Ok(Some(Self { issuer, client_id, roots, username_claim, groups_claim, group_roles, page }))
    }
}

/// Returns true if requests to a URL cannot be read or changed on the network: it uses HTTPS, or HTTP to this machine.
pub(crate) fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    url.has_host() && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback))
}

fn is_plain(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
}

/// Returns a URL for a message, without a user name and a password.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(issuer: &str) -> OidcFlags {
        OidcFlags {
            oidc_issuer: Some(issuer.to_owned()),
            oidc_client_id: Some("tidegate".to_owned()),
            ..OidcFlags::default()
        }
    }

    fn error(flags: OidcFlags) -> String {
        OidcSettings::new(flags).unwrap_err().to_string()
    }

    #[test]
    fn an_issuer_is_an_https_url_or_on_this_machine() {
        assert!(OidcSettings::new(OidcFlags::default()).unwrap().is_none());
        for good in [
            "https://id.example.org/realms/ops",
            "http://127.0.0.1:9000",
            "http://[::1]:9000/x",
            "http://localhost",
        ] {
            let settings = OidcSettings::new(of(good)).unwrap().unwrap();
            assert_eq!((settings.issuer.as_str(), settings.username_claim.as_str()), (good, "sub"));
        }
        for bad in [
            "http://id.example.org",
            "id.example.org",
            "https://kim:hidden@id.example.org",
            "https://id.example.org/?x=1",
            "https://id.example.org/#x",
            "file:///etc/passwd",
            "",
        ] {
            let error = error(of(bad));
            assert!(error.starts_with("--oidc-issuer must be") && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn settings_that_miss_another_one_are_rejected_with_its_flag() {
        let alone = OidcFlags { oidc_groups_claim: Some("roles".to_owned()), ..OidcFlags::default() };
        assert_eq!(error(alone), "--oidc-groups-claim requires --oidc-issuer");
        let flags = OidcFlags { oidc_client_id: None, ..of("https://id.example.org") };
        assert_eq!(error(flags), "--oidc-issuer requires --oidc-client-id");
        let flags = OidcFlags { oidc_username_claim: Some(" ".to_owned()), ..of("https://id.example.org") };
        assert_eq!(error(flags), "--oidc-username-claim must not be empty");
        let flags = OidcFlags { oidc_ca_file: Some("/nonexistent".into()), ..of("https://id.example.org") };
        assert!(error(flags).starts_with("--oidc-ca-file /nonexistent: "));
    }

    #[test]
    fn a_group_has_a_role_everywhere_or_in_one_namespace() {
        let parse = |text: &str| text.parse::<GroupRole>();
        let role = parse("prod/operator=cn=ops,dc=example").unwrap();
        assert_eq!((role.role.as_str(), role.group.as_str()), ("operator", "cn=ops,dc=example"));
        assert_eq!(role.namespaces(), Some([Namespace::parse("prod").unwrap()].into()));
        assert_eq!(parse("admin=platform").unwrap().namespaces(), None);
        for bad in ["admin", "admin=", "=x", "Prod!/admin=x", "agent=x", "a/b/c=x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
