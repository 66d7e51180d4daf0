//! Tests of requirements. Each test runs in a temporary network namespace that is removed with the test's
//! thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use dataplane::{
    Dataplane as _, DesiredProgram, DesiredState, Outcome, Scope,
    nftables::{NftablesBackend, NftablesOptions},
    userspace,
};
use kernel::netlink::{
    route,
    socket::{Netlink, Protocol as NetlinkProtocol},
    uapi,
    wire::{Attributes, Message, generic_header, netfilter_header},
};
use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::quantity::{Port, Revision, Weight},
    program::{Destination, Frontend, Masquerade, Program, Role, Route, Target, Verdict},
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

use super::needs::Test;

/// Result of testing a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// The test succeeded, with these details.
    Works(String),
    /// The test failed for this reason.
    Fails(String),
    /// The test could not be run, for this reason.
    Untested(String),
    /// This process may not run the test, as in a unit of systemd with `RestrictNamespaces=`.
    Unable(String),
}

/// Runner of the tests. Caches the iptables command that works on this machine.
#[derive(Debug, Default)]
pub(super) struct Prober {
    iptables: Option<&'static str>,
    /// True if this process may not test iptables commands.
    is_unable: bool,
}

/// Names of the iptables command, in the order in which they are tried.
const IPTABLES_COMMANDS: [&str; 3] = ["iptables", "iptables-nft", "iptables-legacy"];
const IP6TABLES_COMMANDS: [&str; 3] = ["ip6tables", "ip6tables-nft", "ip6tables-legacy"];

impl Prober {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn test(&mut self, test: Test) -> ProbeResult {
        match test {
            Test::NetAdmin => net_admin(),
            Test::Writable(path) => writable(path),
            Test::IsOn(path) => is_on(path),
            Test::Table => apart(|| {
                let target = Target { address: address(2), port: Some(PORT) };
                let targets = Arc::new(BTreeMap::from([(target, Weight(1))]));
                let verdict = Verdict::Forward { masquerade: Masquerade::OffCluster, targets };
                table(NftablesOptions::default(), verdict)
            }),
            Test::CaptureTable => apart(|| {
                let options = NftablesOptions { table: userspace::TABLE, ..NftablesOptions::default() };
                table(options, Verdict::Relay { port: PORT })
            }),
            Test::Conntrack => apart(conntrack),
            Test::Ipset => apart(|| ipset(IPSET_CMD_PROTOCOL, Attributes::default())),
            Test::IpsetType(name) => apart(move || {
                let family = [uapi::NFPROTO_IPV4];
                let named = Attributes::default().text(IPSET_ATTR_TYPENAME, name);
                ipset(IPSET_CMD_TYPE, named.bytes(IPSET_ATTR_FAMILY, &family))
            }),
            Test::IpvsFamily => apart(|| ipvs_family().map(|_| String::new())),
            Test::IpvsScheduler(name) => apart(move || ipvs_scheduler(name)),
            Test::Link(kind) => apart(move || link(kind)),
            Test::Iptables => {
                let (command, answer) = working(IPTABLES_COMMANDS);
                self.iptables = command;
                self.is_unable = matches!(answer, ProbeResult::Unable(_));
                answer
            }
            Test::Ip6tables => working(IP6TABLES_COMMANDS).1,
            Test::Rule(words) => match self.iptables {
                Some(command) => apart(move || rule(command, words)),
                None if self.is_unable => ProbeResult::Unable("not tested".to_owned()),
                None => ProbeResult::Untested("no iptables command to test with".to_owned()),
            },
        }
    }
}

/// Runs a test on a new thread in a new network namespace.
fn apart(test: impl FnOnce() -> Result<String, String> + Send + 'static) -> ProbeResult {
    let run = move || match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => match test() {
            Ok(seen) => ProbeResult::Works(seen),
            Err(why) => ProbeResult::Fails(why),
        },
        Err(error) => {
            ProbeResult::Unable(format!("not tested, cannot create a network namespace: {}", error.desc()))
        }
    };
    match thread::spawn(run).join() {
        Ok(answer) => answer,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Bit of `CAP_NET_ADMIN` in a capability set (`linux/capability.h`).
const CAP_NET_ADMIN: u64 = 1 << 12;

fn net_admin() -> ProbeResult {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    match effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()) {
        Some(bits) if bits & CAP_NET_ADMIN != 0 => ProbeResult::Works(String::new()),
        Some(_) => ProbeResult::Fails("the process does not have it".to_owned()),
        None => ProbeResult::Untested("/proc/self/status lists no capabilities".to_owned()),
    }
}

fn writable(path: &str) -> ProbeResult {
    match File::options().write(true).open(Path::new("/proc/sys").join(path)) {
        Ok(_) => ProbeResult::Works("writable".to_owned()),
        Err(error) => ProbeResult::Fails(error.to_string()),
    }
}

fn is_on(path: &str) -> ProbeResult {
    match fs::read_to_string(Path::new("/proc/sys").join(path)) {
        Ok(value) if value.trim() == "0" => ProbeResult::Fails("it is 0".to_owned()),
        Ok(value) => ProbeResult::Works(format!("it is {}", value.trim())),
        Err(error) => ProbeResult::Fails(error.to_string()),
    }
}

const PORT: Port = Port::new(80).expect("80 is not 0");

const fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

/// Programs one Service in nftables mode, or the redirecting rules of userspace mode, and reads them back.
fn table(options: NftablesOptions, verdict: Verdict) -> Result<String, String> {
    let service = ServiceKey::try_from("preflight/probe".to_owned()).map_err(|error| error.to_string())?;
    let frontend = Frontend {
        destination: Destination::Address(address(1)),
        protocol: Protocol::Tcp,
        ports: PORT.into(),
    };
    let program = Program {
        frontends: [(frontend, Route::new(Role::ClusterIp, verdict))].into_iter().collect(),
        virtual_addresses: BTreeSet::from([address(1)]),
        ..Program::default()
    };
    let mut desired = DesiredState::default();
    let program = DesiredProgram { revision: Revision(1), program: Arc::new(program) };
    desired.programs.insert(service.clone(), program);
    let said = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let mut backend = NftablesBackend::open(options).map_err(|error| said(&error))?;
    let pass = backend.apply(&desired, &Scope::Everything);
    match (pass.failed, pass.outcomes.get(&service)) {
        (Some(error), _) => Err(said(&error)),
        (None, Some(Outcome::Verified)) => Ok(String::new()),
        (None, Some(Outcome::Failed { message, .. })) => Err(message.clone()),
        (None, None) => Err("the test returned no result".to_owned()),
    }
}

fn conntrack() -> Result<String, String> {
    const GET: u16 = 1;
    let dump = Message {
        kind: uapi::NFNL_SUBSYS_CTNETLINK << 8 | GET,
        flags: uapi::NLM_F_REQUEST | uapi::NLM_F_DUMP,
        header: netfilter_header(0, 0),
        attributes: Attributes::default(),
    };
    let mut netlink = open(NetlinkProtocol::Netfilter)?;
    netlink.dump(&dump, || (), |(), _| Ok(())).map_err(|error| error.to_string())?;
    Ok(String::new())
}

// `linux/netfilter/ipset/ip_set.h`.
const NFNL_SUBSYS_IPSET: u16 = 6;
const IPSET_PROTOCOL: u8 = 6;
const IPSET_CMD_PROTOCOL: u16 = 1;
const IPSET_CMD_TYPE: u16 = 13;
const IPSET_ATTR_PROTOCOL: u16 = 1;
const IPSET_ATTR_TYPENAME: u16 = 3;
const IPSET_ATTR_FAMILY: u16 = 5;

fn ipset(command: u16, attributes: Attributes) -> Result<String, String> {
    let message = Message {
        kind: NFNL_SUBSYS_IPSET << 8 | command,
        flags: uapi::NLM_F_REQUEST | uapi::NLM_F_ACK,
        header: netfilter_header(uapi::NFPROTO_IPV4, 0),
        attributes: attributes.bytes(IPSET_ATTR_PROTOCOL, &[IPSET_PROTOCOL]),
    };
    ask(&mut open(NetlinkProtocol::Netfilter)?, message, |_| ())
}

// `linux/genetlink.h`, `linux/ip_vs.h`.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const IPVS_CMD_NEW_SERVICE: u8 = 1;
const IPVS_CMD_ATTR_SERVICE: u16 = 1;
const IPVS_SVC_ATTR_AF: u16 = 1;
const IPVS_SVC_ATTR_PROTOCOL: u16 = 2;
const IPVS_SVC_ATTR_ADDR: u16 = 3;
const IPVS_SVC_ATTR_PORT: u16 = 4;
const IPVS_SVC_ATTR_SCHED_NAME: u16 = 6;
const IPVS_SVC_ATTR_FLAGS: u16 = 7;
const IPVS_SVC_ATTR_TIMEOUT: u16 = 8;
const IPVS_SVC_ATTR_NETMASK: u16 = 9;

/// Returns the ID of the generic netlink family of IPVS, or an error without IPVS support.
fn ipvs_family() -> Result<u16, String> {
    let message = Message {
        kind: GENL_ID_CTRL,
        flags: uapi::NLM_F_REQUEST | uapi::NLM_F_ACK,
        header: generic_header(CTRL_CMD_GETFAMILY, 1),
        attributes: Attributes::default().text(CTRL_ATTR_FAMILY_NAME, "IPVS"),
    };
    let mut family = None;
    ask(&mut open(NetlinkProtocol::Generic)?, message, |answer| {
        let ids = answer.attributes().flatten().filter(|attribute| attribute.kind == CTRL_ATTR_FAMILY_ID);
        family = ids.filter_map(|attribute| attribute.ne16().ok()).next().or(family);
    })?;
    family.ok_or_else(|| "the kernel returned no ID for the family".to_owned())
}

fn ipvs_scheduler(name: &str) -> Result<String, String> {
    let address = [[192, 0, 2, 1], [0; 4], [0; 4], [0; 4]].concat();
    let service = Attributes::default()
        .ne16(IPVS_SVC_ATTR_AF, uapi::NFPROTO_IPV4.into())
        .ne16(IPVS_SVC_ATTR_PROTOCOL, Protocol::Tcp.number().into())
        .bytes(IPVS_SVC_ATTR_ADDR, &address)
        .be16(IPVS_SVC_ATTR_PORT, 80)
        .text(IPVS_SVC_ATTR_SCHED_NAME, name)
        .bytes(IPVS_SVC_ATTR_FLAGS, &[[0; 4], [0xff; 4]].concat())
        .ne32(IPVS_SVC_ATTR_TIMEOUT, 0)
        .be32(IPVS_SVC_ATTR_NETMASK, u32::MAX);
    let message = Message {
        kind: ipvs_family()?,
        flags: uapi::NLM_F_REQUEST | uapi::NLM_F_ACK,
        header: generic_header(IPVS_CMD_NEW_SERVICE, 1),
        attributes: Attributes::default().nested(IPVS_CMD_ATTR_SERVICE, &service),
    };
    ask(&mut open(NetlinkProtocol::Generic)?, message, |_| ())
}

fn link(kind: &str) -> Result<String, String> {
    let mut link = LinkMessage::default();
    let info = LinkInfo::Kind(InfoKind::from(kind));
    link.attributes = vec![LinkAttribute::IfName("probe".to_owned()), LinkAttribute::LinkInfo(vec![info])];
    let flags = uapi::NLM_F_ACK | uapi::NLM_F_CREATE | uapi::NLM_F_EXCL;
    let message = route::request(&RouteNetlinkMessage::NewLink(link), flags);
    ask(&mut open(NetlinkProtocol::Route)?, message, |_| ())
}

fn open(protocol: NetlinkProtocol) -> Result<Netlink, String> {
    Netlink::open(protocol).map_err(|error| format!("no netlink socket: {error}"))
}

fn ask(
    netlink: &mut Netlink,
    message: Message,
    mut each: impl FnMut(&kernel::netlink::wire::ReceivedMessage<'_>),
) -> Result<String, String> {
    let errnos = netlink.ask(&[message], |_, answer| {
        each(answer);
        Ok(())
    });
    match errnos.map_err(|error| error.to_string())?.first() {
        Some(0) => Ok(String::new()),
        Some(errno) => {
            let errno = Errno::from_raw(*errno);
            let is_unknown = [Errno::ENOENT, Errno::EOPNOTSUPP, Errno::EPROTONOSUPPORT].contains(&errno);
            Err(if is_unknown { "not supported by this kernel" } else { errno.desc() }.to_owned())
        }
        None => Err("the kernel did not reply".to_owned()),
    }
}

/// Returns the first command that can read the kernel's rules, and the test result, which contains the flavor
/// of the command.
fn working(commands: [&'static str; 3]) -> (Option<&'static str>, ProbeResult) {
    let mut why = String::new();
    for command in commands {
        match apart(move || run(command, &["-w", "5", "-t", "nat", "-S"])) {
            ProbeResult::Works(_) => {
                let version = run(command, &["--version"]).unwrap_or_default();
                return (Some(command), ProbeResult::Works(format!("{command}: {version}")));
            }
            ProbeResult::Fails(said) if why.is_empty() => why = said,
            ProbeResult::Fails(_) => {}
            unknown @ (ProbeResult::Untested(_) | ProbeResult::Unable(_)) => return (None, unknown),
        }
    }
    (None, ProbeResult::Fails(why))
}

fn rule(command: &str, words: &[&str]) -> Result<String, String> {
    let (table, rule) = words.split_first().ok_or("a rule has a table")?;
    let (table, chain) = match *table {
        "nat-postrouting" => ("nat", "POSTROUTING"),
        "nat" => ("nat", "PREROUTING"),
        table => (table, "FORWARD"),
    };
    run(command, &[&["-w", "5", "-t", table, "-A", chain], rule].concat()).map(|_| String::new())
}

/// Runs a command and returns its first output line, or an error if it fails.
fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    let said = if output.status.success() { output.stdout } else { output.stderr };
    let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}
