//! Download of a file from any HTTP server, for manifests given by URL. No token is sent.

use std::time::Duration;

use reqwest::{Client, Url, redirect};
use tls_trust::Trust;

use crate::{error::root_cause, http};

/// Maximum number of redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// Downloads a file of at most `limit` bytes. Certificates are verified by the CAs of the system. Redirects are
/// followed, except from HTTPS to HTTP.
///
/// # Errors
/// Returns a message if the server does not respond within `timeout`, if it responds with an error, or if the file is
/// larger than `limit`.
pub async fn fetch(url: &Url, timeout: Duration, limit: usize) -> Result<Vec<u8>, String> {
    let tls = match url.scheme() {
        "https" => Trust::system().client().map_err(|error| error.to_string())?.with_no_client_auth(),
        // A redirect from HTTP to HTTPS then fails, because no CA is trusted.
        _ => http::no_tls().map_err(|error| error.to_string())?,
    };
    let policy = redirect::Policy::custom(|attempt| {
        let is_downgrade = attempt.previous().last().is_some_and(|url| url.scheme() == "https")
            && attempt.url().scheme() != "https";
        if is_downgrade || attempt.previous().len() > REDIRECTS_MAX {
            attempt.stop()
        } else {
            attempt.follow()
        }
    });
    let client = Client::builder().tls_backend_preconfigured(tls).redirect(policy).timeout(timeout).build();
    let client = client.map_err(|error| error.to_string())?;
    let mut response = client.get(url.clone()).send().await.map_err(|error| root_cause(&error))?;
    if !response.status().is_success() {
        return Err(format!("the server responded with {}", response.status()));
    }
    let bytes = http::read(&mut response, limit).await.map_err(|error| root_cause(&error))?;
    bytes.ok_or_else(|| format!("the file is larger than {limit} bytes"))
}
