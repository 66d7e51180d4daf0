//! State of this machine: requirements, units of systemd, settings of the daemons, networks and forwarding of packets.

use std::{
    fs,
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::Command,
    time::Duration,
};

use ::settings::SettingsFile;
use model::{kinds::address_pool::AddressRange, primitives::name::Name};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::network::{HostNetworks, addresses};
use crate::error::Failure;

/// Unit of the control server.
pub(super) const CONTROL: &str = "tidegate-api";
/// Unit of the agent.
pub(super) const AGENT: &str = "tidegate-agent";
/// Settings file of the control server.
const CONTROL_SETTINGS: &str = "/etc/tidegate/api.toml";
/// Settings file of the agent.
pub(super) const AGENT_SETTINGS: &str = "/etc/tidegate/agent.toml";
/// Directory with the state of the agent.
pub(super) const AGENT_STATE: &str = "/var/lib/tidegate-agent";
/// Default listen address of the control server.
const CONTROL_LISTEN: &str = "127.0.0.1:7440";
/// Default listen address of the agent.
const AGENT_LISTEN: &str = "127.0.0.1:7441";
/// Guide for clusters that `quickstart` does not set up.
pub(super) const GUIDE: &str = "see docs/how-to/debian-packages.md";

/// Maximum number of addresses of a pool that are probed.
const PROBED_MAX: usize = 256;
/// Time in which a device responds to the ARP or NDP request of a probe.
const PROBE_TIME: Duration = Duration::from_secs(1);
/// Port of the probes (discard, RFC 863).
const PROBE_PORT: u16 = 9;

/// State of a unit of systemd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UnitState {
    /// True if the unit runs or starts.
    pub(super) is_active: bool,
    /// True if the unit starts at boot.
    pub(super) is_enabled: bool,
}

/// State of this machine, which has everything that `quickstart` needs.
#[derive(Debug, Clone)]
pub(super) struct HostState {
    /// State of the control server's unit.
    pub(super) control: UnitState,
    /// State of the agent's unit.
    pub(super) agent: UnitState,
    /// Name of the Node of this machine.
    pub(super) node: Name,
    /// True if the control server listens at its default address, without TLS.
    pub(super) is_default_listen: bool,
    /// True if the kernel forwards IPv4 packets.
    pub(super) is_forwarding: bool,
}

/// Creates the failure for a machine that lacks something.
fn unmet(message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Machine { message: message.into(), hint: hint.into() }
}

/// Checks everything that needs no control server.
///
/// # Errors
/// Returns the first requirement that this machine does not meet, with the remedy.
pub(super) fn examine() -> Result<HostState, Failure> {
    check_system()?;
    let control = installed_unit(CONTROL)?;
    let agent = installed_unit(AGENT)?;
    let agent_settings = settings(AGENT_SETTINGS)?;
    let servers = agent_settings.as_ref().map(|file| file.texts("api")).unwrap_or_default();
    let has_variable = properties(AGENT)?.iter().any(|line| line.contains("TIDEGATE_API="));
    if has_variable || servers.iter().any(|server| !server.starts_with("unix:")) {
        let servers =
            if servers.is_empty() { "those of TIDEGATE_API".to_owned() } else { servers.join(", ") };
        return Err(unmet(
            format!("the agent of this machine belongs to other control servers: {servers}"),
            format!(
                "to leave that cluster, remove `api` from {AGENT_SETTINGS} and TIDEGATE_API from its unit"
            ),
        ));
    }
    let control_settings = settings(CONTROL_SETTINGS)?;
    let listen = |file: Option<&SettingsFile>, default: &str| {
        let given = file.and_then(|file| file.texts("listen").into_iter().next());
        given.unwrap_or_else(|| default.to_owned())
    };
    if !control.is_active {
        check_port(&listen(control_settings.as_ref(), CONTROL_LISTEN), CONTROL)?;
    }
    if !agent.is_active {
        check_port(&listen(agent_settings.as_ref(), AGENT_LISTEN), AGENT)?;
    }
    let has = |key: &str| control_settings.as_ref().is_some_and(|file| !file.texts(key).is_empty());
    let name = agent_settings.and_then(|file| file.texts("node").into_iter().next());
    let host_name = || nix::unistd::gethostname().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.unwrap_or_else(host_name);
    let node = Name::parse(&name).map_err(|error| {
        unmet(format!("`{name}` is no node name: {error}"), format!("set `node` in {AGENT_SETTINGS}"))
    })?;
    Ok(HostState {
        control,
        agent,
        node,
        is_default_listen: !has("listen") && !has("tls-cert-file"),
        is_forwarding: fs::read_to_string(super::record::FORWARDING).is_ok_and(|text| text.trim() == "1"),
    })
}

/// Checks that the user is root, and that systemd and `ip` are there.
///
/// # Errors
/// Returns the first requirement that this machine does not meet, with the remedy.
pub(super) fn check_system() -> Result<(), Failure> {
    if !Uid::effective().is_root() {
        return Err(unmet("quickstart needs root", "run it with sudo: `sudo tidegate quickstart`"));
    }
    if !Path::new("/run/systemd/system").is_dir() {
        return Err(unmet(
            "systemd does not run on this machine",
            "start tidegate-api and tidegate-agent by hand, or try `tidegate demo`",
        ));
    }
    output_of("ip", &["-Version"])
        .map(drop)
        .map_err(|_| unmet("the program `ip` is missing", "install it: `apt-get install iproute2`"))
}

/// Returns the properties of a unit that are relevant here, as lines `NAME=VALUE`.
fn properties(unit: &str) -> Result<Vec<String>, Failure> {
    let names = "--property=LoadState,ActiveState,UnitFileState,Environment";
    let text = output_of("systemctl", &["show", names, &format!("{unit}.service")])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns the state of a unit, or `None` if it is not installed.
///
/// # Errors
/// Returns an error if the unit is masked.
pub(super) fn unit(name: &str) -> Result<Option<UnitState>, Failure> {
    let lines = properties(name)?;
    let value = |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let is_active = matches!(value("ActiveState="), "active" | "activating" | "reloading");
    match value("LoadState=") {
        "loaded" => Ok(Some(UnitState { is_active, is_enabled: value("UnitFileState=") == "enabled" })),
        "masked" => Err(unmet(
            format!("the unit {name}.service is masked"),
            format!("allow it to start: `systemctl unmask {name}`"),
        )),
        _ => Ok(None),
    }
}

fn installed_unit(name: &str) -> Result<UnitState, Failure> {
    unit(name)?.ok_or_else(|| {
        unmet(
            format!("the unit {name}.service is not installed"),
            format!("install the package {name} from its directory: `apt-get install ./{name}_*.deb`"),
        )
    })
}

/// Reads a settings file; `None` if it does not exist.
fn settings(path: &str) -> Result<Option<SettingsFile>, Failure> {
    let path = Path::new(path);
    Ok(if path.exists() { Some(SettingsFile::read(path)?) } else { None })
}

/// Checks that no other program listens at the address of a daemon.
fn check_port(listen: &str, unit: &str) -> Result<(), Failure> {
    let Ok(address) = listen.parse::<SocketAddr>() else { return Ok(()) };
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(unmet(
            format!("another program listens at {address}, the address of {unit}"),
            format!(
                "stop that program, which `ss -ltnp 'sport = {}'` shows, or set `listen` in the settings of {unit}",
                address.port()
            ),
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Reads the networks of this machine.
///
/// # Errors
/// Returns an error if `ip` fails.
pub(super) fn networks() -> Result<HostNetworks, Failure> {
    let routes = output_of("ip", &["-json", "-4", "route", "show"])?;
    let links = output_of("ip", &["-json", "address", "show"])?;
    let neighbors = output_of("ip", &["-json", "neighbor", "show"])?;
    HostNetworks::parse([&routes, &links, &neighbors])
        .map_err(|error| unmet(format!("the output of `ip -json` is not understood: {error}"), GUIDE))
}

/// Makes the kernel resolve the link-layer addresses of a range, so that devices that use one become neighbors.
pub(super) fn probe(range: &AddressRange) {
    let sockets = [UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)), UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))];
    for address in addresses(range, PROBED_MAX) {
        for socket in sockets.iter().flatten() {
            // The socket of the other family fails.
            let _sent = socket.send_to(&[], (address, PROBE_PORT));
        }
    }
    std::thread::sleep(PROBE_TIME);
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// Returns an error with the last line of the program's error output if it fails.
pub(super) fn output_of(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let command = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| unmet(format!("cannot run `{program}`: {error}"), GUIDE))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let error = error.trim().lines().next_back().unwrap_or("no reason given").to_owned();
    Err(unmet(format!("`{command}` failed: {error}"), "`journalctl -n 50` may have the reason"))
}
