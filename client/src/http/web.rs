//! HTTP client for servers other than control servers, such as an issuer of ID tokens.

use std::{path::Path, time::Duration};

use reqwest::{Client, Response, Url, header, redirect};
use tls_trust::Trust;

use super::read;
use crate::{connection::is_private, error::root_cause};

/// HTTP client that sends no token, follows no redirect, and uses only HTTPS or this machine.
pub struct WebClient {
    client: Client,
    limit: usize,
}

/// Status and body of a response.
pub type WebResponse = (u16, Vec<u8>);

impl WebClient {
    /// Creates a client that verifies servers with the CAs in `ca_file`, or those of the system. `timeout` is the maximum
    /// duration of a request, and `limit` the maximum size of a response in bytes.
    ///
    /// # Errors
    /// Returns a message if the CAs cannot be read.
    pub fn new(ca_file: Option<&Path>, timeout: Duration, limit: usize) -> Result<Self, String> {
        let trust = match ca_file {
            Some(path) => Trust::file(path).map_err(|error| format!("{}: {error}", path.display()))?,
            None => Trust::system(),
        };
        let tls = trust.client().map_err(|error| error.to_string())?.with_no_client_auth();
        let builder = Client::builder().tls_backend_preconfigured(tls).redirect(redirect::Policy::none());
        let client = builder.timeout(timeout).build().map_err(|error| error.to_string())?;
        Ok(Self { client, limit })
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// Returns a message if the URL is not private, or if no complete response arrives.
    pub async fn get(&self, url: &Url) -> Result<WebResponse, String> {
        check(url)?;
        self.read(self.client.get(url.clone()).send().await).await
    }

    /// Sends a POST request with the fields of a form (`application/x-www-form-urlencoded`).
    ///
    /// # Errors
    /// Returns a message if the URL is not private, or if no complete response arrives.
    pub async fn post_form(&self, url: &Url, fields: &[(&str, &str)]) -> Result<WebResponse, String> {
        check(url)?;
        // The query of a URL has the encoding of a form.
        let mut form = url.clone();
        form.query_pairs_mut().clear().extend_pairs(fields);
        let body = form.query().unwrap_or_default().to_owned();
        let request = self
            .client
            .post(url.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(body);
        self.read(request.send().await).await
    }

    async fn read(&self, sent: Result<Response, reqwest::Error>) -> Result<WebResponse, String> {
        let failed = |error: reqwest::Error| root_cause(&error.without_url());
        let mut response = sent.map_err(failed)?;
        let status = response.status().as_u16();
        let body = read(&mut response, self.limit).await.map_err(failed)?;
        body.map(|body| (status, body))
            .ok_or_else(|| format!("the response is larger than {} bytes", self.limit))
    }
}

fn check(url: &Url) -> Result<(), String> {
    if is_private(url) { Ok(()) } else { Err(format!("{url} is no https:// URL")) }
}
