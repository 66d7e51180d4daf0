//! `store migrate`: copies the contents of one store into another, reads the copy back and compares it.

use anyhow::{Context, bail, ensure};
use store::{Contents, Options, Store, StoreState};

use super::{Migrate, say};
use crate::base::clock_and_random::{Source, System};

/// Number of audit log entries copied at a time.
const AUDIT_AT_ONCE: usize = 500;

/// Copies the contents of `from` to `to`, verifies the copy, and prints the progress.
pub(super) async fn run(Migrate { from, to }: &Migrate, options: &Options) -> anyhow::Result<()> {
    ensure!(from != to, "--from and --to are the same store");
    match store::inspect_with(from, options).await.with_context(|| format!("--from {from}"))? {
        StoreState::Absent => bail!("--from {from}: there is no such store"),
        StoreState::InUse { holder } => bail!("--from {from} is in use by {holder}; stop that server first"),
        StoreState::Ready => {}
    }
    if let StoreState::InUse { holder } =
        store::inspect_with(to, options).await.with_context(|| format!("--to {to}"))?
    {
        bail!("--to {to} is in use by {holder}; name an empty store");
    }
    let now = System.now();
    let source = store::open_with(from, options, now).await.with_context(|| format!("--from {from}"))?;
    let (position, contents) = Contents::of(&*source, true).await.context("--from cannot be read")?;
    let target = store::open_with(to, options, now).await.with_context(|| format!("--to {to}"))?;
    let (at, there) = Contents::of(&*target, true).await.context("--to cannot be read")?;
    ensure!(there.is_empty(), "--to {to} is not empty: it is at {at}; name an empty store");
    let new = target.replace(at, &contents, position.epoch, now).await.context("nothing was copied")?;
    let (_, read) = Contents::of(&*target, true).await.context("the copy cannot be read back")?;
    ensure!(read == contents, "{to} does not have the contents of {from}: remove it, and start over");
    let audit = copy_audit(&*source, &*target).await?;
    let is_still = source.load().await.context("--from cannot be read again")?.position == position;
    source.resign().await;
    target.resign().await;
    ensure!(is_still, "{from} changed during the copy: stop every server, remove {to}, and start over");
    let Contents { revision: _, objects, history, history_floor: _, vault } = &contents;
    let (objects, history, vault) = (objects.len(), history.len(), vault.len());
    say(&format!(
        "{objects} objects, {history} writes of the history, {vault} records of the vault and {audit} entries of the audit \
         log were copied and compared"
    ))?;
    say(&format!("{from} was at {position}, {to} is at {new}: start servers with --store {to} only"))
}

/// Copies the audit log, newest entries first. Returns the number of copied entries.
async fn copy_audit(source: &dyn Store, target: &dyn Store) -> anyhow::Result<usize> {
    let mut before = None;
    let mut count = 0;
    loop {
        let entries = source.audit(before, AUDIT_AT_ONCE).await.context("the audit log cannot be read")?;
        let Some(last) = entries.last() else { return Ok(count) };
        before = Some(last.number);
        count += entries.len();
        target.put_audit(&entries).await.context("the audit log cannot be copied")?;
    }
}
