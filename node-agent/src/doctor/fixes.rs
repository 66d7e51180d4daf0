//! Fixes that `tidegate-agent doctor --fix` or the control server requests: a closed list of limited changes
//! that do not affect other programs. A remote request can only select a fix, never a setting or a value.

use std::{fs, io, path::Path};

use base::limit_message;
use model::{
    kinds::node::ProxyMode,
    wire::doctor::{FixOutcome, FixResult, SafeFix},
};

use crate::preflight;

/// Fill level of the conntrack table in percent from which it is reported as nearly full and may be enlarged
/// by a fix.
pub(super) const NEAR_FULL_PERCENT: u64 = 80;
/// Maximum number of conntrack entries that a fix allows, also by repeated requests. At about 320 bytes of
/// kernel memory per entry, they take about 1.3 GiB.
const CONNTRACK_MAX_MAX: u64 = 4 << 20;

/// Directory of the kernel settings (sysctls) that fixes write.
pub const SYSCTLS: &str = "/proc/sys";

/// Result of a fix: the outcome with a message, or the message of an error.
type Outcome = Result<(FixOutcome, String), String>;

/// Applies one fix on this machine. `sysctls` is [`SYSCTLS`] except in tests.
#[must_use]
pub fn make(fix: SafeFix, mode: ProxyMode, sysctls: &Path) -> FixResult {
    let outcome = match fix {
        SafeFix::IpForward => ip_forward(sysctls),
        SafeFix::ConntrackMax => conntrack_max(sysctls),
        SafeFix::LoadModules => load_modules(mode),
    };
    let (outcome, message) = outcome.unwrap_or_else(|why| (FixOutcome::Failed, why));
    FixResult { fix, outcome, message: limit_message(message) }
}

const IP_FORWARD: &str = "net/ipv4/ip_forward";

fn ip_forward(sysctls: &Path) -> Outcome {
    match read(sysctls, IP_FORWARD)? {
        0 => set(sysctls, IP_FORWARD, 0, 1),
        _ => Ok((FixOutcome::NotNeeded, "net.ipv4.ip_forward is on".to_owned())),
    }
}

const CONNTRACK_COUNT: &str = "net/netfilter/nf_conntrack_count";
const CONNTRACK_MAX: &str = "net/netfilter/nf_conntrack_max";

fn conntrack_max(sysctls: &Path) -> Outcome {
    let (count, max) = (read(sysctls, CONNTRACK_COUNT)?, read(sysctls, CONNTRACK_MAX)?);
    if max == 0 || count.saturating_mul(100) < max.saturating_mul(NEAR_FULL_PERCENT) {
        return Ok((FixOutcome::NotNeeded, format!("{count} of {max} connections are tracked")));
    }
    if max >= CONNTRACK_MAX_MAX {
        return Err(format!(
            "net.netfilter.nf_conntrack_max is {max}; enlarge the table manually if the machine has \
             enough memory"
        ));
    }
    set(sysctls, CONNTRACK_MAX, max, max.saturating_mul(2).min(CONNTRACK_MAX_MAX))
}

fn load_modules(mode: ProxyMode) -> Outcome {
    let loadable = |report: &preflight::Report| -> Vec<String> {
        let left = report.findings.iter().filter(|finding| finding.is_to_load());
        left.map(|finding| finding.need.clone()).collect()
    };
    let before = loadable(&preflight::run(mode, false));
    if before.is_empty() {
        return Ok((FixOutcome::NotNeeded, "there are no modules to load".to_owned()));
    }
    let after = preflight::run(mode, true);
    let failed: Vec<_> = after
        .findings
        .iter()
        .filter(|finding| before.contains(&finding.need) && !finding.is_there())
        .collect();
    if let Some(first) = failed.first() {
        return Err(format!(
            "{} of {} modules were not loaded: {} {}",
            failed.len(),
            before.len(),
            first.need,
            first.detail
        ));
    }
    Ok((FixOutcome::Done, format!("loaded {}", before.join(", "))))
}

fn read(sysctls: &Path, path: &str) -> Result<u64, String> {
    let text = fs::read_to_string(sysctls.join(path)).map_err(|error| said(path, &error))?;
    text.trim().parse().map_err(|_| format!("{} is not a number", dotted(path)))
}

fn set(sysctls: &Path, path: &str, before: u64, value: u64) -> Outcome {
    fs::write(sysctls.join(path), format!("{value}\n")).map_err(|error| said(path, &error))?;
    let name = dotted(path);
    match read(sysctls, path)? {
        now if now == value => {
            let message = format!(
                "{name} was {before} and is {value}, until the next start of the machine: keep it in /etc/sysctl.d"
            );
            Ok((FixOutcome::Done, message))
        }
        now => Err(format!("{name} is {now} after {value} was written")),
    }
}

fn said(path: &str, error: &io::Error) -> String {
    format!("{}: {error}", dotted(path))
}

fn dotted(path: &str) -> String {
    path.replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Temporary directory, removed on drop, with files in place of the kernel settings. A test must not
    /// change the real conntrack settings, because all network namespaces share them.
    struct Machine(std::path::PathBuf);

    impl Machine {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tg-fixes-{test}-{}", std::process::id()));
            fs::create_dir_all(path.join("net/netfilter")).unwrap();
            Self(path)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn made(count: u64, max: u64) -> (FixOutcome, u64) {
        let machine = Machine::new("conntrack");
        fs::write(machine.0.join(CONNTRACK_COUNT), format!("{count}\n")).unwrap();
        fs::write(machine.0.join(CONNTRACK_MAX), format!("{max}\n")).unwrap();
        let done = make(SafeFix::ConntrackMax, ProxyMode::Nftables, &machine.0);
        (done.outcome, read(&machine.0, CONNTRACK_MAX).unwrap())
    }

    #[test]
    fn a_table_is_doubled_only_when_it_is_nearly_full_and_up_to_a_bound() {
        assert_eq!(made(799, 1000), (FixOutcome::NotNeeded, 1000));
        assert_eq!(made(800, 1000), (FixOutcome::Done, 2000));
        assert_eq!(made(5, 0), (FixOutcome::NotNeeded, 0));
        assert_eq!(made(CONNTRACK_MAX_MAX - 1, CONNTRACK_MAX_MAX - 1), (FixOutcome::Done, CONNTRACK_MAX_MAX));
        assert_eq!(made(CONNTRACK_MAX_MAX, CONNTRACK_MAX_MAX), (FixOutcome::Failed, CONNTRACK_MAX_MAX));
    }

    #[test]
    fn what_the_machine_refuses_is_said() {
        let nothing = Machine::new("nothing");
        let done = make(SafeFix::IpForward, ProxyMode::Nftables, &nothing.0);
        assert_eq!(done.outcome, FixOutcome::Failed);
        assert!(done.message.starts_with("net.ipv4.ip_forward: "), "{}", done.message);
    }
}
