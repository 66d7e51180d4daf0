//! Execution of `nft` in a namespace, with measurement of time, CPU usage, netlink messages and kernel memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use lab::host::{netns::Namespace, scratch::Scratch, wait};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};

/// Type of the first message of a transaction (`NFNL_MSG_BATCH_BEGIN`); `END` is the type of the last one
/// (`NFNL_MSG_BATCH_END`).
const BEGIN: u32 = 16;
const END: u32 = 17;
/// Timeout for the kernel to free `FREED_SHARE` of the memory of a removed ruleset. The kernel keeps the rest
/// for the next load.
const FREED_WITHIN: Duration = Duration::from_secs(120);
const FREED_SHARE: f64 = 0.7;
/// Time to wait before memory is read after a load, and after a removal if memory cannot be read.
const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// Name prefix of the benchmark's control groups, followed by the process id.
const GROUP: &str = "tidegate-bench-";

/// Cost of one run of `nft`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// Wall-clock time of the `nft` process in milliseconds.
    pub(super) wall_ms: f64,
    /// CPU time of `nft` itself in milliseconds.
    pub(super) user_ms: f64,
    /// CPU time spent in the kernel in milliseconds.
    pub(super) system_ms: f64,
}

/// Size of a transaction: number and bytes of its netlink messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TransactionSize {
    /// Number of netlink messages, including the first and last of the transaction.
    pub(super) messages: u32,
    /// Total size of the messages in bytes.
    pub(super) bytes: u64,
}

/// `nft` program with a directory for its input files.
#[derive(Debug)]
pub(super) struct Tool {
    directory: Scratch,
    /// Control group that accounts for kernel memory, if available.
    group: Option<Group>,
}

impl Tool {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { directory: Scratch::new("bench")?, group: Group::make() })
    }

    /// Loads a ruleset with `nft -f` and returns its cost.
    pub(super) fn load(&self, place: &Namespace, text: &str) -> Result<Took> {
        let path = self.file(text)?;
        let mut command = Command::new("nft");
        command.arg("-f").arg(&path);
        place.inside(|| timed(&mut command))
    }

    /// Loads a ruleset with netlink debugging enabled and returns the number and size of the messages.
    pub(super) fn sent(&self, place: &Namespace, text: &str) -> Result<TransactionSize> {
        let path = self.file(text)?;
        let path = path.to_str().context("the path of a temporary file is valid UTF-8")?;
        parse_sent(&place.run("nft", &["--debug=mnl", "-f", path])?)
    }

    /// Loads a full ruleset. Returns its cost and the increase of kernel memory in KiB, or `None` for the
    /// memory if it cannot be read.
    pub(super) fn load_weighed(&self, place: &Namespace, text: &str) -> Result<(Took, Option<u64>)> {
        let Some(group) = &self.group else { return Ok((self.load(place, text)?, None)) };
        let (path, before) = (self.file(text)?, group.kib()?);
        // The process must join the group before it executes the tool.
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec nft -f \"$1\""]).arg(group.members()).arg(&path);
        let took = place.inside(|| timed(&mut command))?;
        // Memory of the process itself is released shortly after its end.
        thread::sleep(SETTLED_AFTER);
        Ok((took, Some(group.kib()?.saturating_sub(before))))
    }

    /// Deletes a table and waits until the kernel has freed most of the `kib` KiB that the table took, so
    /// that the release does not disturb later measurements. If `kib` is `None`, waits only for
    /// [`SETTLED_AFTER`].
    pub(super) fn remove(&self, place: &Namespace, table: &str, kib: Option<u64>) -> Result<()> {
        let before = self.group.as_ref().map(Group::kib).transpose()?;
        self.load(place, &format!("delete table {table}\n"))?;
        thread::sleep(SETTLED_AFTER);
        let (Some(group), Some(before), Some(taken)) = (&self.group, before, kib) else { return Ok(()) };
        let least = (taken as f64 * FREED_SHARE) as u64;
        wait::until_within(FREED_WITHIN, "the kernel to free the removed ruleset", || {
            let freed = before.saturating_sub(group.kib()?);
            ensure!(freed >= least, "{freed} KiB of {taken} are freed");
            Ok(())
        })
    }

    fn file(&self, text: &str) -> Result<PathBuf> {
        let path = self.directory.path().join("ruleset.nft");
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Runs a program to completion and measures its time. No other code may wait for children of this process
/// meanwhile, because the CPU time is the increase of the total over all children waited for.
fn timed(command: &mut Command) -> Result<Took> {
    let used = || {
        getrusage(UsageWho::RUSAGE_CHILDREN).context(
            "cannot read the resource usage of child \
                                                                processes",
        )
    };
    let (before, begun) = (used()?, Instant::now());
    let output =
        command.stdin(Stdio::null()).output().context("cannot start nft (`make setup` installs it)")?;
    let (wall, after) = (begun.elapsed(), used()?);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft failed: {}", said.lines().next().unwrap_or_default());
    let ms = |time: TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
    Ok(Took {
        wall_ms: wall.as_secs_f64() * 1e3,
        user_ms: ms(after.user_time()) - ms(before.user_time()),
        system_ms: ms(after.system_time()) - ms(before.system_time()),
    })
}

/// Parses the output of `nft --debug=mnl`, which has a line with the length and a line with the type of every
/// message.
fn parse_sent(said: &str) -> Result<TransactionSize> {
    let number = |line: &str| {
        let word = line.split('|').nth(1).map(str::trim).context("the line has no number")?;
        word.parse::<u32>().with_context(|| format!("`{word}` is not a number"))
    };
    let (mut sent, mut is_inside) = (TransactionSize::default(), false);
    let mut lines = said.lines();
    while let Some(line) = lines.find(|line| line.contains("| message length |")) {
        let length = number(line)?;
        let kind = number(lines.next().context("the message has no type")?)?;
        is_inside |= kind == BEGIN;
        if is_inside {
            sent = TransactionSize { messages: sent.messages + 1, bytes: sent.bytes + u64::from(length) };
        }
        is_inside &= kind != END;
    }
    ensure!(sent.messages > 0, "nft reported no transaction");
    Ok(sent)
}

/// Control group in which `nft` runs to measure the kernel memory of a loaded ruleset. Removed on drop.
#[derive(Debug)]
struct Group {
    directory: PathBuf,
    /// File with the memory usage of the group in bytes. If the file has several values, `word` is the key
    /// before the value.
    file: &'static str,
    word: Option<&'static str>,
}

impl Group {
    /// Creates a group. Requires cgroup v1 with kernel memory accounting, or cgroup v2 with a memory
    /// controller; returns `None` otherwise.
    fn make() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.split_once(":memory:")).map_or("", |(_, path)| path);
        let name = format!("{GROUP}{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/')).join(&name);
        let v2 = Path::new("/sys/fs/cgroup").join(&name);
        let candidates = [(v1, "memory.kmem.usage_in_bytes", None), (v2, "memory.stat", Some("kernel "))];
        candidates.into_iter().find_map(|(directory, file, word)| {
            sweep(directory.parent()?);
            fs::create_dir(&directory).ok()?;
            // Dropping a group without accounting removes it.
            let group = Self { directory, file, word };
            group.kib().is_ok().then_some(group)
        })
    }

    fn members(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    fn kib(&self) -> Result<u64> {
        let path = self.directory.join(self.file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let word = self.word.unwrap_or_default();
        let number = text.lines().find_map(|line| line.strip_prefix(word)).context("no number")?;
        Ok(number.trim().parse::<u64>().context("not a number of bytes")? / 1_024)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group has no members left, so it is an empty directory.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Removes the control groups that killed runs left behind.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(GROUP)) else { continue };
        if !Path::new("/proc").join(id).exists() {
            // With several concurrent runs, one of them removes it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_the_transaction_are_counted() {
        let message = |length: u32, kind: u32| {
            format!(
                "----------------\n|  {length:010}  |\t| message length |\n| {kind:05} | R--- |\t|  type | flags  |\n"
            )
        };
        let said: String =
            [(20, 2576), (20, 16), (96, 2572), (20, 17), (20, 2576)].map(|(l, k)| message(l, k)).concat();
        assert_eq!(parse_sent(&said).unwrap(), TransactionSize { messages: 3, bytes: 136 });
        assert!(parse_sent(&message(20, 2576)).is_err());
    }
}
