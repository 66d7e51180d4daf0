//! Bootstrap token: first token with all permissions. The server creates it if authentication is required and no
//! such token exists, and writes it to a file that only the server's user can read.
//!
//! Of several servers that start at once, exactly one creates the token, with a conditional write to the store.
//! The file is written under a temporary name before the token is stored, and renamed afterwards.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use model::primitives::{name::Label, secret::Secret};
use store::{StoreError, VaultError};

use crate::context::server_state::ServerState;
use crate::security::{
    roles::ADMIN,
    tokens::{self, Binding, TokenRecord},
};

/// Id of the bootstrap token, in hexadecimal. All servers use the same id, so that a store has only one such
/// token.
const ID: &str = "b00757ab0000";
/// Name of the bootstrap token.
const NAME: &str = "bootstrap";
/// Recorded creator of the bootstrap token.
const MAKER: &str = "tidegate";

/// Reason why the bootstrap token could not be created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The token file cannot be written.
    #[error("--bootstrap-token-file {path} cannot be written")]
    File {
        /// Path of the token file.
        path: PathBuf,
        /// I/O error of the write.
        #[source]
        cause: io::Error,
    },
    /// The vault of the store has no space for another token.
    #[error("the vault of the store is full; revoke unused tokens")]
    Full,
    /// The store cannot be read or written.
    #[error("the bootstrap token cannot be stored")]
    Store(#[source] StoreError),
}

/// Creates the bootstrap token if one is needed. Returns true if it was created.
///
/// # Errors
/// Returns an error if the file or the store cannot be written. No token is created then, unless only the final
/// rename of the file failed.
pub async fn bootstrap(app: &ServerState, path: &Path) -> Result<bool, BootstrapError> {
    let now = app.source.now();
    let directory = app.authenticator.directory();
    if !app.authenticator.is_required() || directory.has_admin(now) {
        return Ok(false);
    }
    let text = tokens::mint(ID, &app.source.secret());
    let binding = Binding {
        role: Label::parse(ADMIN).expect("the name of a role is a label"),
        namespaces: None,
        pools: None,
        endpoint_ranges: None,
    };
    let token = TokenRecord {
        name: Label::parse(NAME).expect("the name is a label"),
        digest: tokens::digest(text.reveal()),
        bindings: vec![binding],
        created: now,
        created_by: MAKER.to_owned(),
        expires: None,
    };
    let failed = |cause| BootstrapError::File { path: path.to_owned(), cause };
    let new = write_new(path, &text).map_err(failed)?;
    let key = format!("{}{ID}", tokens::VAULT_PREFIX);
    // Replaces an existing record that is no longer valid, for example because its bindings were removed.
    let at = directory.token(ID).map_or(0, |(version, _)| version);
    let put = app.vault.put(&key, at, &token).await;
    let outcome = match put {
        Ok(_) => fs::rename(&new, path).map(|()| true).map_err(failed),
        Err(VaultError::Stale { .. }) => Ok(false),
        Err(VaultError::Unavailable(error)) => Err(BootstrapError::Store(error)),
        Err(VaultError::TooLarge { .. }) => Err(BootstrapError::Full),
    };
    if !matches!(outcome, Ok(true)) {
        // The file of a token that was not stored is useless.
        let _ = fs::remove_file(&new);
    }
    outcome
}

/// Writes the token to a temporary file next to the target, readable only by the owner. Returns its path.
fn write_new(path: &Path, text: &Secret) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(format!("{}\n", text.reveal()).as_bytes()).and_then(|()| file.sync_all());
    match written {
        Ok(()) => Ok(new),
        Err(error) => {
            let _ = fs::remove_file(&new);
            Err(error)
        }
    }
}
