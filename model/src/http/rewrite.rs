//! New paths and addresses of requests that are rewritten or redirected.

use super::{head::RequestHead, path::after_prefix};
use crate::{
    kinds::http_route::{PathModifier, PathModifierType, RedirectScheme, RequestRedirect},
    primitives::{hostname_pattern::HostnamePattern, quantity::Port},
};

/// Well-known port of HTTP.
const HTTP_PORT: u16 = 80;
/// Well-known port of HTTP over TLS.
const HTTPS_PORT: u16 = 443;

/// Returns the path of a request after a modifier. `prefix` is the matched prefix without final slash, in the form in which
/// paths are compared.
pub(super) fn modify_path(modifier: &PathModifier, prefix: &str, path: &str) -> String {
    match modifier.modifier_type {
        PathModifierType::ReplaceFullPath => modifier.replace_full_path.clone().unwrap_or_default(),
        PathModifierType::ReplacePrefixMatch => {
            let new = modifier.replace_prefix_match.as_deref().unwrap_or_default();
            match after_prefix(path, prefix) {
                None if new.is_empty() => "/".to_owned(),
                None => new.to_owned(),
                Some(rest) => format!("{}/{rest}", new.trim_end_matches('/')),
            }
        }
    }
}

/// Returns the address of a redirection of a request to a path.
pub(super) fn location(redirect: &RequestRedirect, head: &RequestHead<'_>, path: &str) -> String {
    let RequestHead { port, host, query, server_name, .. } = *head;
    let own = if server_name.is_some() { RedirectScheme::Https } else { RedirectScheme::Http };
    let scheme = redirect.scheme.unwrap_or(own);
    let well_known = match scheme {
        RedirectScheme::Http => HTTP_PORT,
        RedirectScheme::Https => HTTPS_PORT,
    };
    let of_listener = if redirect.scheme.is_some() { well_known } else { port.get() };
    let port = redirect.port.map_or(of_listener, Port::get);
    let host = redirect.hostname.as_ref().map_or(host, HostnamePattern::as_str);
    let port = if port == well_known { String::new() } else { format!(":{port}") };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{path}{query}")
}
