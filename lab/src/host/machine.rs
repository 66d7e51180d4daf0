//! Container-like machine on which tests install packages, with systemd as its first process. The files are an
//! overlay over those of the host, so that changes stay inside the machine.
//!
//! ```text
//!  files of this machine (read only) ──────┐
//!  tmpfs ──────────────────────────────────┴─ overlay ─▶ root of the machine ─▶ systemd ─▶ dpkg, units, daemons
//! ```
//!
//! The machine has its own mount, PID, network, UTS, IPC and cgroup namespaces, and can only write the network
//! parameters below `/proc/sys`. Services that the host starts at boot are not started in the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::host::{netns::Namespace, registry, shell, wait};

/// Mount points of cgroup v2 on the host: together with cgroup v1, or alone.
const CONTROL_GROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Name prefix of every control group of this harness, followed by the process id.
const PREFIX: &str = "tg-machine-";
/// Systemd target that is active once the machine has booted.
const BOOTED: &str = "basic.target";

/// Shell script that creates the root file system and starts systemd in it. `$1` is an empty directory, `$2` the
/// host name.
const BOOT: &str = r#"
set -e
hostname "$2"
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm run/old srv/packages
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
echo "$2" >etc/hostname
printf '127.0.0.1 localhost\n::1 localhost\n' >etc/hosts
rm -rf etc/systemd/system/*.wants usr/sbin/policy-rc.d var/log/journal
for unit in systemd-remount-fs.service systemd-sysctl.service systemd-random-seed.service dev-hugepages.mount \
  dev-mqueue.mount proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount \
  sys-fs-fuse-connections.mount systemd-udevd.service systemd-udev-trigger.service systemd-timesyncd.service; do
  ln -sfn /dev/null "etc/systemd/system/$unit"
done
ln -sfn /lib/systemd/system/basic.target etc/systemd/system/default.target
# Indexing all manual pages of this machine takes longer than everything else.
rm -f var/lib/man-db/auto-update
pivot_root . run/old
umount -l run/old
exec env -i container=tidegate-lab PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
"#;

/// Container-like machine whose first process is systemd. Dropping it shuts the machine down.
#[derive(Debug)]
pub struct SystemdMachine {
    namespace: Namespace,
    host: Child,
    init: u32,
    control_group: PathBuf,
    directory: TempDir,
}

impl SystemdMachine {
    /// Boots a machine and waits until its systemd can start services. The network namespace of the machine
    /// has only a loopback interface.
    ///
    /// # Errors
    /// Returns an error if the process is not root or the kernel rejects the setup.
    pub fn boot(name: &str) -> Result<Self> {
        let namespace = Namespace::new(name)?;
        let directory = tempfile::Builder::new().prefix(&format!("{PREFIX}{name}-")).tempdir()?;
        let control_group = make_control_group(&namespace)?;
        let log = fs::File::create(directory.path().with_extension("log"))?;
        let enter = "echo $$ >\"$1/cgroup.procs\"; shift; exec \"$@\"";
        let root = directory.path().display().to_string();
        // `ip netns exec` hides the control groups, so the group is entered first; each program execs the
        // next.
        let host = Command::new("sh")
            .args(["-ec", enter, "sh"])
            .arg(&control_group)
            .args(["ip", "netns", "exec", namespace.name()])
            .args(["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"])
            .args(["sh", "-c", BOOT, "sh", &root, name])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start `sh`")?;
        registry::add_process(host.id());
        let mut machine = Self { namespace, host, init: 0, control_group, directory };
        machine.wait_until_booted().with_context(|| machine.log())?;
        Ok(machine)
    }

    fn wait_until_booted(&mut self) -> Result<()> {
        let host = self.host.id();
        self.init = wait::until("the machine's first process", || {
            ensure!(self.host.try_wait()?.is_none(), "the process has ended");
            let children = fs::read_to_string(format!("/proc/{host}/task/{host}/children"))?;
            Ok(children.trim().parse()?)
        })?;
        wait::until("the machine to boot", || self.run(&format!("systemctl is-active {BOOTED}")))?;
        Ok(())
    }

    /// Returns the network namespace of the machine.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the process id of the machine's first process on the host, whose namespaces are those of the machine.
    #[must_use]
    pub const fn init(&self) -> u32 {
        self.init
    }

    /// Returns the path on the host of a file that has the path `inside` in the machine.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.init)).join(inside.trim_start_matches('/'))
    }

    /// Runs shell lines as root of the machine in `/srv/packages`, up to the first failure, and returns their
    /// output.
    pub fn run(&self, lines: &str) -> Result<String> {
        let target = self.init.to_string();
        let lines = format!("cd /srv/packages\n{lines}");
        let clean = [
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
            "LC_ALL=C.UTF-8",
        ];
        let mut arguments = vec!["--target", &target, "--all", "--"];
        arguments.extend(clean);
        arguments.extend(["sh", "-ec", &lines]);
        shell::run("nsenter", &arguments)
    }

    /// Returns the output of the machine's systemd so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().with_extension("log")).unwrap_or_default()
    }
}

impl Drop for SystemdMachine {
    fn drop(&mut self) {
        // The end of the first process ends all others, and with the last of them its mounts.
        let _already_gone = self.host.kill();
        let _ = self.host.wait();
        registry::forget_process(self.host.id());
        let _log = fs::remove_file(self.directory.path().with_extension("log"));
        let _ =
            wait::until("the machine's control groups to be empty", || remove_groups(&self.control_group));
    }
}

fn make_control_group(namespace: &Namespace) -> Result<PathBuf> {
    let mut roots = CONTROL_GROUPS.iter().map(Path::new);
    let root =
        roots.find(|root| root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists());
    let root = root.context("no cgroup v2 hierarchy is mounted, which systemd needs")?;
    let name = namespace.name().trim_start_matches("tg-");
    let group = root.join(format!("{PREFIX}{name}"));
    fs::create_dir(&group).with_context(|| format!("cannot create the control group {}", group.display()))?;
    Ok(group)
}

/// Removes a control group and its children. No process may be left in any of them.
fn remove_groups(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| format!("{} is in use", group.display()))?;
    ensure!(!group.exists(), "{} still exists", group.display());
    Ok(())
}
