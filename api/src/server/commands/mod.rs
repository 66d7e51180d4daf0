//! Subcommands of `tidegate-api`: configuration check and store maintenance. Without a subcommand the program
//! serves the API.
//!
//! None of them runs inside a server. Commands that change a store print the change first.

mod check;
mod difference;
mod files;
mod migrate;
mod restore;

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand};
use store::{Contents, StoreState, backup};

use crate::base::{
    clock_and_random::{Source, System},
    config::{Config, Flags},
};

/// The Tidegate control server: stores the configuration of the cluster and distributes it to the agents
#[derive(Debug, Parser)]
#[command(name = "tidegate-api", version = ::base::build::text(), disable_help_subcommand = true)]
pub struct Cli {
    /// Flags of the server. Subcommands use those that apply to them.
    #[command(flatten)]
    pub flags: Flags,
    /// Subcommand, if any; without one the program serves the API.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Subcommands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check whether the server would start with this configuration; changes nothing
    Check,
    /// Back up, verify, restore or migrate a store
    #[command(subcommand, disable_help_subcommand = true)]
    Store(StoreCommand),
    /// Write man pages and shell completions below a directory that is laid out as /usr/share; used to build
    /// packages
    #[command(hide = true)]
    Manual {
        /// Directory below which the files are written
        #[arg(value_name = "DIR")]
        share: std::path::PathBuf,
    },
}

/// Subcommands of `store`, for the maintenance of a store.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Write the contents of a store into a file. The store must not be in use; for a running server use
    /// `tidegate backup`
    Backup(Backup),
    /// Verify the integrity of a backup file and print a summary of its contents
    Verify {
        /// Backup file to verify
        file: PathBuf,
    },
    /// Replace the contents of a store with a backup. The store must not be in use
    Restore(Restore),
    /// Copy the contents of one store into another, empty one
    Migrate(Migrate),
}

/// Arguments of `store backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// File to create; it must not exist. Only its owner can read it, because it holds every secret of the
    /// cluster
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Include the history of writes, so that they can still be undone after a restore
    #[arg(long)]
    pub history: bool,
}

/// Arguments of `store restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Backup file to restore
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Print the changes and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
}

/// Arguments of `store migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// Store to copy from, such as sqlite:PATH or etcd:http://HOST:2379,…
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// Store to copy into, such as sqlite:PATH or etcd:http://HOST:2379,…; it must be empty
    #[arg(long, value_name = "URL")]
    pub to: String,
}

/// Runs a subcommand and prints its result to standard output.
///
/// # Errors
/// Returns an error with cause and remedy. The store is unchanged unless the error states otherwise.
pub async fn run(command: Command, flags: Flags) -> anyhow::Result<()> {
    match command {
        Command::Manual { share } => {
            man_pages::write(Cli::command(), man_pages::Section::Administration, &share)
                .context("the manual could not be written")
        }
        Command::Check => check::run(&Config::load(flags)?).await,
        Command::Store(StoreCommand::Backup(arguments)) => take(&Config::load(flags)?, &arguments).await,
        Command::Store(StoreCommand::Verify { file }) => verify(&file),
        Command::Store(StoreCommand::Restore(arguments)) => {
            restore::run(&Config::load(flags)?, &arguments).await
        }
        Command::Store(StoreCommand::Migrate(arguments)) => {
            // The etcd settings apply to the one of the two stores that is in etcd.
            let is_etcd = arguments.to.starts_with("etcd:");
            let store = if is_etcd { &arguments.to } else { &arguments.from };
            let config = Config::load(Flags { store: Some(store.clone()), ..flags })?;
            migrate::run(&arguments, &config.store_options).await
        }
    }
}

async fn take(config: &Config, Backup { to, history }: &Backup) -> anyhow::Result<()> {
    let url = &config.store;
    match store::inspect_with(url, &config.store_options).await? {
        StoreState::Absent => anyhow::bail!("--store {url}: there is no such store"),
        StoreState::InUse { holder } => {
            anyhow::bail!("--store {url} is in use by {holder}; use that server: tidegate backup -o FILE")
        }
        StoreState::Ready => {}
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

/// Prints a line to standard output. Returns an error if standard output is closed.
fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("stdout is gone")
}
