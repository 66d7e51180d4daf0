//! Login of users by OpenID Connect: device authorization grant (RFC 8628), and refresh of the ID token of a context.
//!
//! A context with such a login has, beside its token file, a file `NAME.oidc` with the refresh token.

mod provider;

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use client::{Token, TokenSource, Url, http::WebClient};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::provider::{IssuedTokens, Provider, ProviderError};
use super::context::{failed, write_private};
use crate::{
    args::Global,
    client::{Client, Request},
    connection::Connection,
    error::Failure,
    output::Terminal,
};

/// Maximum size of a response of the issuer in bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Maximum size of the file of a login in bytes.
const LOGIN_BYTES_MAX: u64 = 64 * 1024;
/// Remaining lifetime in seconds below which an ID token is replaced before a request.
const REMAINING_SECS_MIN: u64 = 30;

/// Login that is stored beside the token of a context.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StoredLogin {
    token_endpoint: String,
    client_id: String,
    refresh_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

/// Settings of OpenID Connect of a control server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerOidc {
    issuer: String,
    client_id: String,
}

/// Returns the file of the login of a token file.
pub(super) fn login_file(token_file: &Path) -> PathBuf {
    token_file.with_extension("oidc")
}

/// Returns the lock file of a token file. It is held during a refresh, because an issuer may revoke a refresh token that is used
/// twice.
pub(super) fn lock_file(token_file: &Path) -> PathBuf {
    token_file.with_extension("lock")
}

/// Logs a user in at the issuer of the control server, and returns the ID token, and the login to store if the issuer
/// grants a refresh token.
pub(super) async fn log_in(
    global: &Global,
    ca_file: Option<PathBuf>,
    terminal: &mut Terminal,
) -> Result<(String, Option<StoredLogin>), Failure> {
    let mut connection = Connection::of(global)?;
    connection.control.token = TokenSource::None;
    let client = Client::new(connection, global.timeout, None, global.show_request)?;
    let settings = client.send(Request::get("/v1/oidc")).await?;
    let ServerOidc { issuer, client_id } = serde_json::from_value(settings)
        .map_err(|_| broken("the control server returned no settings of OpenID Connect"))?;
    let ca_file = ca_file.map(|path| fs::canonicalize(&path).unwrap_or(path));
    let web = web(ca_file.as_deref(), global.timeout)?;
    let provider =
        Provider::discover(&web, &issuer, &client_id).await.map_err(|error| at(&issuer, &error))?;
    let tokens = provider.authorize_device(&web, terminal).await.map_err(|error| at(&issuer, &error))?;
    let login = |refresh_token| StoredLogin {
        token_endpoint: provider.token_endpoint.to_string(),
        client_id: client_id.clone(),
        refresh_token,
        ca_file: ca_file.clone(),
    };
    Ok((tokens.id_token, tokens.refresh_token.map(login)))
}

/// Stores the login of a token file, or removes an earlier one.
pub(super) fn store(token_file: &Path, login: Option<&StoredLogin>) -> Result<(), Failure> {
    let path = login_file(token_file);
    match login {
        Some(login) => {
            let text = serde_json::to_string_pretty(login).map_err(|error| broken(&error.to_string()))?;
            write_private(&path, &format!("{text}\n"))
        }
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&path, &error)),
            Ok(()) | Err(_) => Ok(()),
        },
    }
}

/// Replaces the ID token in the token file of the command if it expires soon and a login is stored beside it.
pub(super) async fn refresh(global: &Global) -> Result<(), Failure> {
    let Some(token_file) = &global.token_file else { return Ok(()) };
    let path = login_file(token_file);
    if !path.exists() || remaining_secs(token_file) >= REMAINING_SECS_MIN {
        return Ok(());
    }
    let lock = lock_file(token_file);
    let file = fs::OpenOptions::new().create(true).append(true).open(&lock);
    let file = file.map_err(|error| failed(&lock, &error))?;
    let _held = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| failed(&lock, &std::io::Error::from(error)))?;
    // Another process may have replaced the token meanwhile.
    if remaining_secs(token_file) >= REMAINING_SECS_MIN {
        return Ok(());
    }
    let login = read(&path)?;
    let endpoint = Url::parse(&login.token_endpoint).map_err(|_| no_login(&path))?;
    let web = web(login.ca_file.as_deref(), global.timeout)?;
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", &login.client_id),
        ("refresh_token", &login.refresh_token),
    ];
    match provider::request_tokens(&web, &endpoint, &fields).await {
        Ok(IssuedTokens { id_token, refresh_token }) => {
            let id_token = Token::parse(&id_token, "the response of the issuer").map(|_| id_token)?;
            let refresh_token = refresh_token.unwrap_or_else(|| login.refresh_token.clone());
            // The refresh token first: the one before may be invalid now.
            store(token_file, Some(&StoredLogin { refresh_token, ..login }))?;
            write_private(token_file, &format!("{id_token}\n"))
        }
        // The token is still valid for some seconds.
        Err(_) if remaining_secs(token_file) > 0 => Ok(()),
        Err(ProviderError::Rejected { .. }) => Err(Failure::Machine {
            message: "the login has ended".to_owned(),
            hint: "log in again: `tidegate login URL --oidc`".to_owned(),
        }),
        Err(error) => Err(at(&login.token_endpoint, &error)),
    }
}

fn read(path: &Path) -> Result<StoredLogin, Failure> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(LOGIN_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| failed(path, &error))?;
    // The message of the parser could contain the refresh token.
    serde_json::from_str(&text).map_err(|_| no_login(path))
}

fn no_login(path: &Path) -> Failure {
    let cause = "it is no login; log in again: `tidegate login URL --oidc`".to_owned();
    Failure::File { path: path.to_owned(), cause }
}

fn web(ca_file: Option<&Path>, timeout: Duration) -> Result<WebClient, Failure> {
    WebClient::new(ca_file, timeout, BODY_BYTES_MAX)
        .map_err(|error| Failure::usage(error, "give the CA of the issuer with --oidc-ca-file FILE"))
}

/// Returns the remaining lifetime of the ID token in a file in seconds; 0 if it has expired or cannot be read.
fn remaining_secs(token_file: &Path) -> u64 {
    let text = fs::read_to_string(token_file).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    end_of(&text).map_or(0, |end| end.saturating_sub(now))
}

/// Returns the claim `exp` of an ID token, which only the server verifies.
fn end_of(token: &str) -> Option<u64> {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.get("exp")?.as_u64()
}

fn broken(message: &str) -> Failure {
    Failure::Machine {
        message: message.to_owned(),
        hint: "log in with a token: `tidegate login URL --token-file FILE`".to_owned(),
    }
}

fn at(issuer: &str, error: &ProviderError) -> Failure {
    let message = crate::terminal::clean(&format!("{issuer}: {error}"));
    broken(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_id_token_is_its_claim() {
        let token = |claims: &str| format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(end_of(&token(r#"{"exp":17}"#)), Some(17));
        for bad in [
            token("{}"),
            token(r#"{"exp":-1}"#),
            token("x"),
            "tgt_x".to_owned(),
            String::new(),
            "a.*.b".to_owned(),
        ] {
            assert_eq!(end_of(&bad), None, "{bad}");
        }
    }
}
