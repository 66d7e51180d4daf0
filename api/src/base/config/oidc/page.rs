//! Settings of the login to the status page by OpenID Connect.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use model::primitives::secret::Secret;
use reqwest::Url;

use super::{InvalidOidc, is_plain, is_private, without_user};

/// Path of the callback, to which the issuer sends browsers after a login.
pub(crate) const CALLBACK_PATH: &str = "/v1/session/oidc/callback";
/// Path that begins a login.
pub(crate) const LOGIN_PATH: &str = "/v1/session/oidc";
/// Maximum length of a client secret in bytes.
const SECRET_BYTES_MAX: usize = 1024;

/// Flags for the login to the status page by OpenID Connect.
#[derive(Debug, Clone, Default, Args)]
pub struct OidcPageFlags {
    /// Address of the status page in browsers, such as https://control.example.org:7440. Users can then log in to the page at the
    /// issuer, which must allow the redirect URI of this address followed by /v1/session/oidc/callback
    #[arg(long, env = "TIDEGATE_OIDC_PAGE_URL", value_name = "URL")]
    pub oidc_page_url: Option<String>,
    /// Client that the issuer has for the status page [default: the client of --oidc-client-id]
    #[arg(long, env = "TIDEGATE_OIDC_PAGE_CLIENT_ID", value_name = "ID")]
    pub oidc_page_client_id: Option<String>,
    /// File with the secret of the client of the status page [default: a public client, which has none]
    #[arg(long, env = "TIDEGATE_OIDC_PAGE_CLIENT_SECRET_FILE", value_name = "FILE")]
    pub oidc_page_client_secret_file: Option<PathBuf>,
}

/// Settings of the login to the status page by OpenID Connect.
#[derive(Debug, Clone)]
pub struct OidcPageSettings {
    /// Address of the status page in browsers, without a path: an `https` URL, or an `http` URL of this machine.
    pub url: Url,
    /// Id of the client of the status page.
    pub client_id: String,
    /// Secret of the client; `None` for a public client.
    pub client_secret: Option<Secret>,
}

impl OidcPageFlags {
    /// Returns the flags, and whether each is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 3] {
        let Self { oidc_page_url, oidc_page_client_id, oidc_page_client_secret_file } = self;
        [
            ("--oidc-page-url", oidc_page_url.is_some()),
            ("--oidc-page-client-id", oidc_page_client_id.is_some()),
            ("--oidc-page-client-secret-file", oidc_page_client_secret_file.is_some()),
        ]
    }
}

impl OidcPageSettings {
    /// Checks the flags and reads the file with the secret. Returns `None` if the page has no such login.
    pub(super) fn new(flags: OidcPageFlags, client_id: &str) -> Result<Option<Self>, InvalidOidc> {
        let orphan = flags.given().into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
        let OidcPageFlags { oidc_page_url, oidc_page_client_id, oidc_page_client_secret_file } = flags;
        let Some(text) = oidc_page_url else {
            return orphan.map_or(Ok(None), |flag| Err(InvalidOidc::Missing(flag, "--oidc-page-url")));
        };
        let is_usable = |url: &Url| is_private(url) && is_plain(url) && url.path() == "/";
        let url = Url::parse(&text).ok().filter(is_usable);
        let url = url.ok_or_else(|| InvalidOidc::PageUrl(without_user(&text)))?;
        let client_id = oidc_page_client_id.unwrap_or_else(|| client_id.to_owned());
        if client_id.trim().is_empty() {
            return Err(InvalidOidc::Empty("--oidc-page-client-id"));
        }
        let client_secret = oidc_page_client_secret_file.map(|path| read_secret(&path)).transpose()?;
        Ok(Some(Self { url, client_id, client_secret }))
    }

    /// Returns the redirect URI that the issuer must allow for the client.
    #[must_use]
    pub fn redirect_uri(&self) -> String {
        self.at(CALLBACK_PATH)
    }

    /// Returns the URL at which a browser begins a login.
    #[must_use]
    pub fn login_url(&self) -> String {
        self.at(LOGIN_PATH)
    }

    /// Returns true if browsers reach the page over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.as_str().trim_end_matches('/'))
    }
}

fn read_secret(path: &Path) -> Result<Secret, InvalidOidc> {
    let mut text = String::new();
    let limit = SECRET_BYTES_MAX as u64 + 2;
    let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text));
    read.map_err(|cause| InvalidOidc::Unreadable { path: path.to_owned(), cause })?;
    let secret = text.trim();
    let is_usable = (1..=SECRET_BYTES_MAX).contains(&secret.len()) && !secret.chars().any(char::is_control);
    if is_usable { Ok(Secret::new(secret.to_owned())) } else { Err(InvalidOidc::Secret(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(url: &str) -> OidcPageFlags {
        OidcPageFlags { oidc_page_url: Some(url.to_owned()), ..OidcPageFlags::default() }
    }

    fn error(flags: OidcPageFlags) -> String {
        OidcPageSettings::new(flags, "tidegate").unwrap_err().to_string()
    }

    #[test]
    fn the_redirect_uri_is_below_the_address_of_the_page() {
        assert!(OidcPageSettings::new(OidcPageFlags::default(), "tidegate").unwrap().is_none());
        for (text, redirect_uri, is_secure) in [
            ("https://Control.example.org", "https://control.example.org/v1/session/oidc/callback", true),
            (
                "https://control.example.org:7440/",
                "https://control.example.org:7440/v1/session/oidc/callback",
                true,
            ),
            ("http://127.0.0.1:7440", "http://127.0.0.1:7440/v1/session/oidc/callback", false),
        ] {
            let settings = OidcPageSettings::new(of(text), "tidegate").unwrap().unwrap();
            assert_eq!((settings.redirect_uri().as_str(), settings.is_secure()), (redirect_uri, is_secure));
            assert_eq!((settings.client_id.as_str(), settings.client_secret), ("tidegate", None));
        }
        for bad in [
            "http://control.example.org",
            "https://control.example.org/page",
            "https://control.example.org/?x",
            "https://kim:hidden@control.example.org",
            "control.example.org",
        ] {
            let error = error(of(bad));
            assert!(error.starts_with("--oidc-page-url must be") && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_one_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let flags = || OidcPageFlags {
            oidc_page_client_secret_file: Some(path.clone()),
            ..of("https://control.example.org")
        };
        let name = path.display().to_string();
        assert!(error(flags()).starts_with(&format!("--oidc-page-client-secret-file {name}: ")));
        fs::write(&path, " s3cret\n").unwrap();
        let settings = OidcPageSettings::new(flags(), "tidegate").unwrap().unwrap();
        assert_eq!(settings.client_secret.unwrap().reveal(), "s3cret");
        for bad in [String::new(), "\n".to_owned(), "a\nb".to_owned(), "x".repeat(SECRET_BYTES_MAX + 1)] {
            fs::write(&path, &bad).unwrap();
            let error = error(flags());
            assert!(error.contains("must contain the secret") && !error.contains("xx"), "{error}");
        }
        let alone = OidcPageFlags { oidc_page_client_id: Some("x".to_owned()), ..OidcPageFlags::default() };
        assert_eq!(error(alone), "--oidc-page-client-id requires --oidc-page-url");
        let empty =
            OidcPageFlags { oidc_page_client_id: Some(" ".to_owned()), ..of("https://control.example.org") };
        assert_eq!(error(empty), "--oidc-page-client-id must not be empty");
    }
}
