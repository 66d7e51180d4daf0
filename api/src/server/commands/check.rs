//! `check`: validates a configuration without starting the server or changing anything.

use anyhow::{Context, bail};
use store::StoreState;
use tokio::net::TcpListener;

use super::say;
use crate::{
    base::{
        clock_and_random::{Source, System},
        config::Config,
    },
    server::tls,
};

/// Checks the log filter, the certificate files, the store and the listen address of a validated configuration,
/// and prints the result of each check.
pub(super) async fn run(config: &Config) -> anyhow::Result<()> {
    say("ok: every setting can be used")?;
    tracing_subscriber::EnvFilter::try_new(&config.log)
        .with_context(|| format!("--log {} is not a valid filter", config.log))?;
    if let Some(files) = config.settings.tls.as_ref().and_then(|tls| tls.files.as_ref()) {
        tls::check(files, System.now()).await?;
        say(&format!("ok: the key fits the certificate of --tls-cert-file {}", files.certificate.display()))?;
    }
    let store = &config.store;
    let server = match store::inspect_with(store, &config.store_options).await.context("--store")? {
        StoreState::Absent => {
            say(&format!("ok: --store {store} would be created"))?;
            None
        }
        StoreState::Ready => {
            say(&format!("ok: --store {store} can be opened"))?;
            None
        }
        StoreState::InUse { holder } => {
            say(&format!("ok: --store {store} is in use by {holder}"))?;
            Some(holder)
        }
    };
    let listen = config.listen;
    match (TcpListener::bind(listen).await, server) {
        (Ok(_), _) => say(&format!("ok: --listen {listen} is free")),
        (Err(_), Some(holder)) => {
            say(&format!("ok: --listen {listen} is in use, presumably by the running server ({holder})"))
        }
        (Err(error), None) => bail!("--listen {listen}: {error}"),
    }
}
