//! Cookies of the status page: attributes, and reading them from requests.

use http::{HeaderMap, HeaderValue, header};

/// Maximum number of cookies parsed per request; browsers send some dozens.
const COOKIES_MAX: usize = 256;

/// Requests of other sites with which browsers send a cookie (RFC 6265bis, 4.1.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SameSite {
    /// Browsers send the cookie with requests of this site only.
    Strict,
    /// Browsers also send the cookie if the user follows a link or a redirect to this site.
    Lax,
}

/// Name and attributes of a cookie that scripts cannot read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CookieKind {
    /// Name over plain HTTP.
    pub(crate) name: &'static str,
    /// Name over TLS. Browsers accept a name with the prefix `__Host-` only from this host over TLS (RFC 6265bis, 4.1.3.2).
    pub(crate) secure_name: &'static str,
    /// Requests with which browsers send the cookie.
    pub(crate) same_site: SameSite,
    /// True if browsers send the cookie over TLS only.
    pub(crate) is_secure: bool,
}

impl CookieKind {
    /// Returns the `Set-Cookie` value of a cookie that browsers keep for `life_secs`; 0 deletes it. `value` must consist of
    /// characters that need no quotes.
    pub(crate) fn set(&self, value: &str, life_secs: i64) -> HeaderValue {
        let more = if self.is_secure { "; Secure" } else { "" };
        let same_site = match self.same_site {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
        };
        let name = self.own_name();
        let text =
            format!("{name}={value}; Path=/; Max-Age={life_secs}; HttpOnly; SameSite={same_site}{more}");
        let mut cookie = HeaderValue::from_str(&text).expect("digits and our own words are header text");
        cookie.set_sensitive(true);
        cookie
    }

    /// Returns the value of the cookie in a request. If a request has several cookies of that name, which indicates cookie
    /// injection, none is accepted.
    pub(crate) fn value_of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.own_name();
        let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = texts.flat_map(|text| text.split(';')).take(COOKIES_MAX);
        let mut own =
            pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(found, _)| *found == name);
        let (_, value) = own.next()?;
        own.next().is_none().then_some(value)
    }

    fn own_name(&self) -> &'static str {
        if self.is_secure { self.secure_name } else { self.name }
    }
}
