//! `store restore`: replaces the contents of a store with a backup.
//!
//! The file is read completely before the store is opened. The store gets a new epoch, so that agents and
//! watches resynchronize and never mistake an older revision for a newer one.

use std::{
    collections::BTreeSet,
    io::{BufRead, IsTerminal, Read, Write},
};

use anyhow::{Context, bail, ensure};
use model::{
    cluster::history::Origin,
    primitives::quantity::{Position, Timestamp},
};
use nix::unistd::{Uid, User};
use serde_json::Value;
use store::{Contents, Store, StoreState, backup::Backup};

use super::{Restore, difference::Difference, files, say};
use crate::{
    base::{
        clock_and_random::{Source, System},
        config::Config,
    },
    write::audit::AuditLog,
};

/// Key prefix of join tokens in the vault. Restored join tokens are dropped, because they are valid for one use
/// and may have been used since.
const JOINS: &str = "joins/";
/// Maximum length in bytes of the user's confirmation that is read from the terminal.
const ANSWER_BYTES_MAX: u64 = 64;

/// Restores the backup. With `dry_run`, only prints the changes that the restore would make.
pub(super) async fn run(config: &Config, Restore { from, dry_run, yes }: &Restore) -> anyhow::Result<()> {
    let Backup { made_at, position: taken, mut contents } = files::read(from)?;
    contents.vault.retain(|key, _| !key.starts_with(JOINS));
    say(&format!("{}: made {made_at} of {taken}", from.display()))?;
    let url = &config.store;
    let looked = store::inspect_with(url, &config.store_options).await?;
    if let StoreState::InUse { holder } = &looked {
        bail!("--store {url} is in use by {holder}; stop that server first");
    }
    if *dry_run && looked == StoreState::Absent {
        say(&format!("{} objects would be put into a new store", contents.objects.len()))?;
        return say("nothing was changed");
    }
    let now = System.now();
    let store = store::open_with(url, &config.store_options, now).await?;
    let (at, before) = Contents::of(&*store, false).await.context("the store cannot be read")?;
    say(&Difference::between(&before, &contents).to_string())?;
    if lacks_authority(&before, &contents) {
        say(
            "warning: the backup lacks a certificate authority of the store: it is of another cluster, or from before a rotation. \
             Agents whose certificates are of that authority cannot connect, and need new join tokens. If the authority was rotated \
             because its key was stolen, rotate it again",
        )?;
    }
    if *dry_run {
        store.resign().await;
        return say("nothing was changed");
    }
    confirm(&format!("put this in place of what {url} keeps at {at}"), *yes)?;
    let restored = store.replace(at, &contents, taken.epoch, now).await.context("nothing was restored")?;
    let backup = format!("{} (made {made_at} of {taken})", from.display());
    let traced = record(&*store, backup, (at, restored), now).await;
    let read = Contents::of(&*store, true).await;
    store.resign().await;
    let (_, read) = read.context("what was restored cannot be read back")?;
    ensure!(read == contents, "the contents of {url} differ from the backup: restore again");
    traced.context("the backup is restored, but its audit entry cannot be stored")?;
    if url.starts_with("etcd:") && config.store_options.local.is_none() {
        say(
            "the audit entry of the restore is not kept: --local-store, where control servers keep the audit log, is not set",
        )?;
    }
    say(&format!("restored; the store is at {restored}: agents and watches resynchronize"))?;
    say("tokens and certificates that were revoked after the backup are valid again: revoke them again")
}

/// Returns true if the backup `after` lacks a certificate authority of the store, so that certificates of that one are no longer
/// accepted.
fn lacks_authority(before: &Contents, after: &Contents) -> bool {
    let certificates = |contents: &Contents| -> BTreeSet<String> {
        let current = record_of(contents, "ca/current").map(|record| record["certificate"].clone());
        let former = record_of(contents, "ca/former").map(|record| record["ca"]["certificate"].clone());
        current.into_iter().chain(former).filter_map(|pem| pem.as_str().map(str::to_owned)).collect()
    };
    let (before, after) = (certificates(before), certificates(after));
    !after.is_empty() && !before.is_subset(&after)
}

fn record_of(contents: &Contents, key: &str) -> Option<Value> {
    serde_json::from_slice(contents.vault.get(key)?).ok()
}

/// Stores an audit entry of the restore with the system user, the backup, and the positions before and after it.
async fn record(
    store: &dyn Store,
    backup: String,
    (before, after): (Position, Position),
    now: Timestamp,
) -> Result<(), store::StoreError> {
    let user = Uid::current();
    let name = User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |found| found.name);
    let origin = Origin { author: format!("system user {name}"), ..Origin::server() };
    let objects = vec![format!("backup {backup}"), format!("store at {before}, now at {after}")];
    AuditLog::add_command(store, origin, ("tidegate-api store restore", objects), (now, after.revision)).await
}

/// Prompts the user to confirm `action` at the terminal, unless `--yes` is given. Returns an error if
/// the user declines or there is no terminal.
fn confirm(action: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let (input, mut error) = (std::io::stdin(), std::io::stderr());
    ensure!(input.is_terminal(), "to {action}, pass --yes: there is no terminal for a confirmation");
    write!(error, "{action}? [y/N] ")?;
    let mut answer = String::new();
    input.lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was changed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Revision;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backup_without_an_authority_of_the_store_is_recognized() {
        let contents = |authorities: &[(&str, Value)]| Contents {
            revision: Revision(1),
            objects: Vec::new(),
            history: Vec::new(),
            history_floor: Revision(0),
            vault: authorities
                .iter()
                .map(|(key, record)| ((*key).to_owned(), serde_json::to_vec(record).unwrap()))
                .collect(),
        };
        let current = |pem: &str| ("ca/current", json!({ "key": "k", "certificate": pem }));
        let former = |pem: &str| ("ca/former", json!({ "ca": { "certificate": pem } }));
        let differs = |before: &[_], after: &[_]| lacks_authority(&contents(before), &contents(after));
        assert!(!differs(&[], &[current("a")]) && !differs(&[current("a")], &[]));
        assert!(!differs(&[current("a")], &[current("a")]) && differs(&[current("a")], &[current("b")]));
        assert!(
            differs(&[current("b"), former("a")], &[current("a")]),
            "nodes that have renewed know b only"
        );
        assert!(
            !differs(&[current("a")], &[current("b"), former("a")]),
            "the rotation began before the backup"
        );
        assert!(differs(&[current("c"), former("b")], &[current("a")]));
    }
}
