//! What `tidegate-api` does beside serving: looks at its configuration, and looks after what a store keeps.
//!
//! None of this runs in a server. Whatever changes a store says first what it would change.

mod check;
mod difference;
mod files;
mod migrate;
mod restore;

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};
use store::{Contents, Looked, backup};

use crate::base::{
    clock_and_random::{Source, System},
    config::{Config, Flags},
};

/// The Tidegate control server: keeps what should be, and tells the agents.
#[derive(Debug, Parser)]
#[command(name = "tidegate-api", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What serving takes, and the commands as far as they need it.
    #[command(flatten)]
    pub flags: Flags,
    /// What to do; to serve, when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What there is beside serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether the server would start with this configuration; changes nothing
    Check,
    /// Look after what a store keeps
    #[command(subcommand, disable_help_subcommand = true)]
    Store(StoreCommand),
    /// Write man pages and completions below a directory that is laid out as /usr/share; packages are made with it
    #[command(hide = true)]
    Manual {
        /// The directory
        #[arg(value_name = "DIR")]
        share: std::path::PathBuf,
    },
}

/// What is done with stores.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Write everything that a store keeps into a file; a server that runs answers `tidegate backup` instead
    Backup(Backup),
    /// Say whether a backup is intact, and what it holds
    Verify {
        /// The backup
        file: PathBuf,
    },
    /// Put a backup in place of what a store keeps, which no server may use meanwhile
    Restore(Restore),
    /// Copy everything from one store into another, empty one
    Migrate(Migrate),
}

/// Arguments of `store backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file, which must not be there yet; only its owner can read it, because it holds every secret of the cluster
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Include the history of writes, so that they can be undone after a restore too
    #[arg(long)]
    pub history: bool,
}

/// Arguments of `store restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Say what would change, change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
}

/// Arguments of `store migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The store to read
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The store to fill, which must be empty
    #[arg(long, value_name = "URL")]
    pub to: String,
}

/// Does what is asked. What is found goes to standard output.
///
/// # Errors
/// What went wrong, and what to do; then nothing was changed unless it says so.
pub async fn run(command: Command, flags: Flags) -> anyhow::Result<()> {
    match command {
        Command::Manual { share } => {
            man_pages::write(Cli::command(), man_pages::Section::Administration, &share)
                .context("the manual was not written")
        }
        Command::Check => check::run(&Config::load(flags)?).await,
        Command::Store(StoreCommand::Backup(arguments)) => take(&Config::load(flags)?, &arguments).await,
        Command::Store(StoreCommand::Verify { file }) => verify(&file),
        Command::Store(StoreCommand::Restore(arguments)) => {
            restore::run(&Config::load(flags)?, &arguments).await
        }
        Command::Store(StoreCommand::Migrate(arguments)) => {
            // Settings of etcd are for whichever of the two is one.
            let is_etcd = arguments.to.starts_with("etcd:");
            let store = if is_etcd { &arguments.to } else { &arguments.from };
            let config = Config::load(Flags { store: Some(store.clone()), ..flags })?;
            migrate::run(&arguments, &config.store_options).await
        }
    }
}

async fn take(config: &Config, Backup { to, history }: &Backup) -> anyhow::Result<()> {
    let url = &config.store;
    match store::look_with(url, &config.store_options).await? {
        Looked::Absent => anyhow::bail!("--store {url}: there is no store"),
        Looked::InUse { holder } => {
            anyhow::bail!("--store {url} is in use by {holder}; ask that server: tidegate backup -o FILE")
        }
        Looked::Ready => {}
    }
    let store = store::open_with(url, &config.store_options, System.now()).await?;
    let (position, contents) = Contents::of(&*store, *history).await.context("the store cannot be read")?;
    store.resign().await;
    let objects = contents.objects.len();
    files::create(to, backup::lines(System.now(), position, contents))
        .with_context(|| format!("--to {}", to.display()))?;
    say(&format!("{} holds {objects} objects as of {position}", to.display()))?;
    say("it holds every secret of the cluster in the clear: keep it where only you can read it")
}

fn verify(file: &std::path::Path) -> anyhow::Result<()> {
    let backup::Backup { made_at, position, contents } = files::read(file)?;
    let Contents { revision: _, objects, history, history_floor: _, vault } = &contents;
    let (objects, history, vault) = (objects.len(), history.len(), vault.len());
    say(&format!("{} is intact: made {made_at} of {position}", file.display()))?;
    say(&format!("{objects} objects, {history} writes of the history, {vault} records of the vault"))
}

/// Tells whoever called.
fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("stdout is gone")
}
