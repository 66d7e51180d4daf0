//! Machine on which tests install packages, with backends and a client in the same network.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use lab::{
    host::{
        machine::SystemdMachine,
        netns::{self, Namespace},
        wait,
    },
    network::{
        client::{self, Connection},
        echo::EchoServer,
    },
    processes::binaries,
};

/// Port of the servers in docs/how-to/debian-packages.md.
pub(crate) const PORT: u16 = 8080;
/// Number of successes of each kind required before and after an event.
const STEADY: usize = 20;
/// Pause of a client after a reply, which leaves CPU time for the event.
const PAUSE: Duration = Duration::from_millis(2);
/// Version of the packages to which the test upgrades.
pub(crate) const NEXT: &str = "99.0.0";

/// Builds the packages once for all tests. Returns the directory, which contains the packages of this version
/// and, in `next`, those of the version to which tests upgrade.
pub(crate) fn packages() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let _none_of_an_earlier_run = fs::remove_dir_all(&out);
        build(&out, &[]);
        build(&out.join("next"), &[("VERSION", NEXT), ("PACKAGES", "tidegate-api tidegate-agent tidegate")]);
        out
    })
}

/// Builds packages of the binaries under test in the directory `out`. `settings` are environment variables of
/// the build script. The packages are not compressed, because compression takes most of the build time.
pub(crate) fn build(out: &Path, settings: &[(&str, &str)]) {
    let agent = binaries::find("tidegate-agent").unwrap();
    let output = Command::new(root().join("packaging/debian/build.sh"))
        .args([agent.parent().unwrap(), out])
        .env("COMPRESSION", "none")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the root directory of the source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the contents of all fenced code blocks of one language in one section of the guide
/// (`docs/how-to/debian-packages.md`).
pub(crate) fn guide(section: &str, language: &str) -> String {
    let page = fs::read_to_string(root().join("docs/how-to/debian-packages.md")).unwrap();
    let (mut here, mut inside, mut text) = (String::new(), false, String::new());
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut here);
        } else if let Some(word) = line.strip_prefix("```") {
            inside = !inside && word == language;
        } else if inside && here == section {
            text += &format!("{line}\n");
        }
    }
    assert!(!text.is_empty(), "docs/how-to/debian-packages.md has no {language} in {section}");
    text
}

/// Machine on which packages are installed, with its network.
pub(crate) struct Stage {
    _servers: Vec<EchoServer>,
    fabric: Namespace,
    _places: Vec<Namespace>,
    /// Network namespace of the client.
    pub(crate) client: Namespace,
    /// Machine on which the packages are installed.
    pub(crate) machine: SystemdMachine,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let fabric = Namespace::new("fabric").unwrap();
        fabric.ip(&["link add switch type bridge", "link set switch up"]).unwrap();
        let machine = SystemdMachine::boot("machine").unwrap();
        plug(&fabric, machine.namespace(), 10);
        let client = place(&fabric, "client", 200);
        let places = [place(&fabric, "a", 11), place(&fabric, "b", 12)];
        let servers = ["a", "b"].iter().zip(&places);
        let servers = servers.map(|(name, place)| EchoServer::start(place, name, PORT).unwrap()).collect();
        machine.namespace().sysctl("net/ipv4/ip_forward", "1").unwrap();
        let stage = Self { _servers: servers, fabric, _places: places.into(), client, machine };
        stage.put_what_belongs_to_others();
        stage.copy_packages();
        stage
    }

    /// Adds a host with the address `192.0.2.HOST` to the network.
    pub(crate) fn place(&self, name: &str, host: u8) -> Namespace {
        place(&self.fabric, name, host)
    }

    /// Starts another machine with the address `192.0.2.HOST` in the network.
    pub(crate) fn boot(&self, name: &str, host: u8) -> SystemdMachine {
        let machine = SystemdMachine::boot(name).unwrap();
        plug(&self.fabric, machine.namespace(), host);
        machine
    }

    /// Creates nftables and iptables rules, an ipset, a route and an address that do not belong to Tidegate.
    /// Tests assert at their end that these are unchanged.
    fn put_what_belongs_to_others(&self) {
        let others = "nft add table inet others
            nft add chain inet others input '{ type filter hook input priority 0; }'
            nft add rule inet others input tcp dport 23 drop
            iptables -t nat -A POSTROUTING -s 198.51.100.0/24 -j RETURN
            ipset create others hash:ip
            ipset add others 198.51.100.7
            ip addr add 198.51.100.1/32 dev lo
            ip route add 203.0.113.0/24 dev eth0";
        self.machine.run(others).unwrap();
    }

    fn copy_packages(&self) {
        for (from, to) in [(packages().to_owned(), ""), (packages().join("next"), "next/")] {
            let to = self.machine.path("/srv/packages").join(to);
            fs::create_dir_all(&to).unwrap();
            for file in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
                if file.is_file() {
                    fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
                }
            }
        }
    }

    /// Dumps the kernel state of the machine under test.
    pub(crate) fn kernel(&self) -> String {
        let listings = "nft list ruleset
            iptables-legacy-save | grep -v '^#' || true
            ip6tables-legacy-save | grep -v '^#' || true
            ipset list
            ip -o link show | sed 's/ state .*//'
            ip -o addr show
            ip rule show; ip -6 rule show
            ip route show table all; ip -6 route show table all
            sysctl -a --pattern '^net[.](ipv[46][.](conf|ip_forward)|bridge|netfilter[.]nf_conntrack_tcp_be)' 2>/dev/null";
        self.machine.run(listings).unwrap()
    }

    /// Returns all traces of Tidegate on the machine: files, users and units with its name, and processes
    /// that run its binaries.
    pub(crate) fn traces(&self) -> BTreeSet<String> {
        let listing = "find /etc /usr /var /run /tmp -xdev -iname '*tidegate*' | grep -v '^/usr/src/' || true
            getent passwd; getent group
            systemctl list-unit-files --no-legend '*tidegate*' || true
            for process in /proc/[0-9]*; do readlink $process/exe || true; done | grep tidegate || true";
        self.machine.run(listing).unwrap().lines().map(str::to_owned).collect()
    }

    /// Asserts that no file, user, unit or process of Tidegate has been added or removed since `before`.
    pub(crate) fn has_no_more_traces_than(&self, before: &BTreeSet<String>) {
        let after = self.traces();
        let left: Vec<_> = after.symmetric_difference(before).collect();
        assert!(left.is_empty(), "a file, user, unit or process is left: {left:?}");
    }

    /// Returns the value of a property of a systemd unit, as printed by `systemctl show`.
    pub(crate) fn unit(&self, unit: &str, property: &str) -> String {
        let line = self.machine.run(&format!("systemctl show --value --property {property} {unit}")).unwrap();
        line.trim().to_owned()
    }

    /// Waits until a unit is active, and returns the process ID of its main process.
    pub(crate) fn running(&self, unit: &str) -> String {
        let ready = wait::until(&format!("{unit} to run"), || {
            self.machine.run(&format!("systemctl is-active {unit}"))
        });
        let log = || self.machine.run(&format!("journalctl --no-pager -n 30 -u {unit}")).unwrap_or_default();
        ready.unwrap_or_else(|error| panic!("{error:#}\n{}", log()));
        self.unit(unit, "MainPID")
    }

    /// Waits until the Service has an address and responds there by TCP and UDP, and returns the address with
    /// the port.
    pub(crate) fn address(&self) -> SocketAddr {
        let address = wait::until("an address of the Service", || {
            let address = "tidegate get service web -o json | sed -n 's/.*\"ip\": *\"\\([^\"]*\\)\".*/\\1/p' | head -n 1";
            Ok(format!("{}:80", self.machine.run(address)?.trim()).parse::<SocketAddr>()?)
        });
        let address = address.unwrap();
        wait::until("the Service to answer", || {
            client::tcp(&self.client, address)?;
            client::udp(&self.client, address)
        })
        .unwrap();
        address
    }
}

fn place(fabric: &Namespace, name: &str, host: u8) -> Namespace {
    let namespace = Namespace::new(name).unwrap();
    plug(fabric, &namespace, host);
    namespace
}

fn plug(fabric: &Namespace, namespace: &Namespace, host: u8) {
    let port = format!("port{host}");
    netns::join((fabric, &port), (namespace, "eth0")).unwrap();
    fabric.ip(&[format!("link set {port} master switch")]).unwrap();
    namespace.ip(&[format!("addr add 192.0.2.{host}/24 dev eth0")]).unwrap();
}

/// Results of a client that sends traffic during an upgrade.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Number of successful TCP connections, UDP datagrams, and lines echoed on one established connection.
    pub(crate) answered: [usize; 3],
    /// Failed attempts with their reasons.
    pub(crate) failed: Vec<String>,
    /// Number of retransmitted TCP segments.
    pub(crate) sent_again: u64,
}

/// Sends traffic to `address` while `event` runs: opens TCP connections, sends UDP datagrams, and uses a
/// connection that was opened before. Returns the results.
pub(crate) fn during(client: &Namespace, address: SocketAddr, event: impl FnOnce()) -> Seen {
    let mut old = Connection::open(client, address).unwrap();
    let ended = AtomicBool::new(false);
    let counts = [const { AtomicUsize::new(0) }; 3];
    let before = sent_again(client);
    let failed = thread::scope(|scope| {
        let (ended, [connections, datagrams, lines]) = (&ended, &counts);
        let threads = [
            scope.spawn(move || repeat(|| client::tcp(client, address).map(drop), ended, connections)),
            scope.spawn(move || repeat(|| client::udp(client, address).map(drop), ended, datagrams)),
            scope.spawn(move || repeat(|| old.exchange("still there?"), ended, lines)),
        ];
        let steady = || {
            let floor: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed) + STEADY).collect();
            let is_over = || threads.iter().any(thread::ScopedJoinHandle::is_finished);
            wait::until_true("answers to go on", || {
                let mut counts = counts.iter().zip(&floor);
                is_over() || counts.all(|(count, floor)| count.load(Ordering::Relaxed) >= *floor)
            })
            .unwrap();
        };
        steady();
        event();
        steady();
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    Seen { answered: counts.map(AtomicUsize::into_inner), failed, sent_again: sent_again(client) - before }
}

/// Repeats an attempt until `ended` is set, and returns the number of successes. Stops at the first failure
/// and returns its error too.
fn repeat(
    mut once: impl FnMut() -> anyhow::Result<()>,
    ended: &AtomicBool,
    count: &AtomicUsize,
) -> Option<String> {
    while !ended.load(Ordering::Relaxed) {
        if let Err(error) = once() {
            return Some(format!("{error:#}"));
        }
        count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    None
}

/// Returns the number of TCP retransmissions in a namespace. A retransmission reveals a lost packet, even
/// though TCP recovers from the loss.
fn sent_again(namespace: &Namespace) -> u64 {
    let text = namespace.inside(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().unwrap().split(' ');
    let mut values = names.zip(lines.next().unwrap().split(' '));
    values.find(|(name, _)| *name == "RetransSegs").unwrap().1.parse().unwrap()
}
