//! The first token: made when everybody must prove who they are and nobody can, and written to a file that only the
//! server's user may read.
//!
//! Of several replicas that start at once one makes it: all ask the store for a record that must not exist. The file is
//! there before the record, under another name, so that no token counts that nobody can read.

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
    tokens::{self, Binding, Token},
};

/// The id of the first token: the same for all replicas, so that there is one. Twelve hexadecimal digits, as every id.
const ID: &str = "b00757ab0000";
/// Its name.
const NAME: &str = "bootstrap";
/// Who made it.
const MAKER: &str = "tidegate";

/// Why there is no first token.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The file cannot be written.
    #[error("--bootstrap-token-file {path} cannot be written")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The vault has no room.
    #[error("the vault of the store is full; revoke tokens that nobody uses")]
    Full,
    /// The store failed.
    #[error("the first token cannot be stored")]
    Store(#[source] StoreError),
}

/// Makes the first token if one is needed; says whether it did.
///
/// # Errors
/// The file or the store cannot be written; then no token was made.
pub async fn bootstrap(app: &ServerState, path: &Path) -> Result<bool, BootstrapError> {
    let now = app.source.now();
    let directory = app.desk.directory();
    if !app.desk.is_required() || directory.has_admin(now) {
        return Ok(false);
    }
    let text = tokens::mint(ID, &app.source.secret());
    let binding = Binding {
        role: Label::parse(ADMIN).expect("the name of a role is a label"),
        namespaces: None,
        pools: None,
        endpoint_ranges: None,
    };
    let token = Token {
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
    // A record that is there and allows nothing any more, because it was cut short, is replaced.
    let at = directory.token(ID).map_or(0, |(version, _)| version);
    let put = app.vault.put(&key, at, &token).await;
    let outcome = match put {
        Ok(_) => fs::rename(&new, path).map(|()| true).map_err(failed),
        Err(VaultError::Stale { .. }) => Ok(false),
        Err(VaultError::Unavailable(error)) => Err(BootstrapError::Store(error)),
        Err(VaultError::TooLarge { .. }) => Err(BootstrapError::Full),
    };
    if !matches!(outcome, Ok(true)) {
        // What is not the token of the store opens nothing; it only would confuse.
        let _ = fs::remove_file(&new);
    }
    outcome
}

/// Writes the text to a file beside the wanted one, for its owner alone.
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
