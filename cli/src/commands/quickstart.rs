//! `quickstart`: sets this machine up as a cluster of one node, with a pool of addresses of its network, and undoes that.
//!
//! ```text
//!  examine host ─▶ propose pool ─▶ check cluster ─▶ plan steps ─▶ confirm ─▶ perform, each step recorded before
//!                                                                            └▶ undo reads the record
//! ```

mod host;
mod network;
mod record;
mod undo;

use std::{
    fmt,
    net::IpAddr,
    time::{Duration, Instant},
};

use model::{
    kinds::{
        address_pool::AddressRange,
        resource::{API_VERSION, Kind},
    },
    primitives::name::Name,
};
use serde_json::{Value, json};
use translate::parse::Language;

use self::{
    host::{AGENT, CONTROL, HostState, UnitState},
    network::HostNetworks,
    record::{ContextRecord, QuickstartRecord},
};
use super::{context, prompt::confirm, wait};
use crate::{
    args::{
        Global,
        context::{current, settings_of},
        quickstart::Quickstart,
    },
    client::{Client, Request},
    connection::Connection,
    error::{ExitCode, Failure},
    output::Terminal,
    views::typed::{
        ObjectHeader, decode, decode_items,
        documents::{TokenRow, TokenText},
    },
};

/// Name of the pool, the Advertisement, the token and the context.
const NAME: &str = "quickstart";
/// Reason of the changes, recorded in the history.
const REASON: &str = "tidegate quickstart";
/// URL of the control server in the context, if its settings do not change the address.
const API: &str = "http://127.0.0.1:7440";
/// Maximum time until the agent is ready.
const READY_TIME_MAX: Duration = Duration::from_secs(120);
/// Pause between two looks at a unit.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of proposals, each of which avoids the devices that responded to the probes of the previous one.
const PROPOSALS_MAX: usize = 8;

/// Step of the setup.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SetupStep {
    /// Start and enable the control server.
    Control(UnitState),
    /// Permit forwarding of packets.
    Forwarding,
    /// Start and enable the agent.
    Agent(UnitState),
    /// Create a token and a context.
    Context,
    /// Create the AddressPool and its Advertisement.
    Pool(AddressRange),
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |f: &mut fmt::Formatter<'_>, state: &UnitState, name: &str, purpose: &str| {
            let verb = if state.is_active { "enable" } else { "start and enable" };
            write!(f, "{verb} {name}.service, {purpose}")
        };
        match self {
            Self::Control(state) => unit(f, state, CONTROL, "the control server"),
            Self::Forwarding => {
                write!(f, "let this machine forward IPv4 packets ({})", record::FORWARDING_FILE)
            }
            Self::Agent(state) => {
                unit(f, state, AGENT, "the agent, which joins over the socket of the control server")
            }
            Self::Context => {
                write!(f, "create the token {NAME} with role admin, and the context {NAME} with it")
            }
            Self::Pool(range) => {
                write!(
                    f,
                    "create the AddressPool {NAME} with {range}, announced by ARP and NDP (Advertisement {NAME})"
                )
            }
        }
    }
}

pub(crate) async fn run(
    mut global: Global,
    arguments: Quickstart,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    // The context is for the control server of this machine, with the system's certificates.
    (global.ca_file, global.ca_hash) = (None, None);
    if arguments.undo {
        return undo::run(&global, &arguments, terminal).await;
    }
    let host = host::examine()?;
    let record = QuickstartRecord::load()?;
    let directory = context::home()?;
    let name = name()?;
    let has_context = settings_of(&directory, &name).exists();
    if has_context && record.context.is_none() {
        return Err(unmet(
            format!("a context {NAME} exists already"),
            format!("delete it, or use it and omit quickstart: `tidegate context delete {NAME}`"),
        ));
    }
    let client = client(&global)?;
    let has_pool =
        if host.control.is_active { has_pool(&client, &host, &record).await? } else { record.has_pool };
    let networks = host::networks()?;
    let range = if has_pool { None } else { Some(range(arguments.pool, &networks)?) };
    if host.control.is_active {
        check_pool(&client, range).await?;
    }
    let steps = steps(&host, has_context, range);
    if steps.is_empty() {
        terminal.print("quickstart has set up this machine before: nothing is changed\n")?;
    } else {
        terminal.print("quickstart will:\n")?;
        for step in &steps {
            terminal.print(&format!("  {step}\n"))?;
        }
    }
    if let Some(range) = range {
        terminal
            .print(&format!("{range}: no device responded at these addresses; exclude them from DHCP\n"))?;
    }
    if arguments.dry_run {
        return Ok(ExitCode::Success);
    }
    if !steps.is_empty() {
        let hint =
            "add --yes to confirm, --pool RANGE for other addresses, or --dry-run to print the steps only";
        confirm("Continue?", arguments.yes, hint, terminal)?;
    }
    let mut setup = Setup { global: &global, host: &host, client, record, name };
    for step in &steps {
        setup.perform(step, range, terminal).await.inspect_err(|_| {
            terminal.note(
                "not finished: run `tidegate quickstart` again to continue, or with --undo to remove it",
            );
        })?;
    }
    setup.wait_until_ready(terminal).await?;
    let pool = match range {
        Some(range) => Some(range),
        None => pool_range(&setup.client).await?,
    };
    let own = pool.and_then(|range| networks.own_address(&range));
    terminal.print(&closing(own, setup.record.context.as_ref(), &host))?;
    Ok(ExitCode::Success)
}

/// Creates the failure for a machine or cluster that is unsuitable.
fn unmet(message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Machine { message: message.into(), hint: hint.into() }
}

/// Returns the name of the context.
fn name() -> Result<Name, Failure> {
    Name::parse(NAME).map_err(|error| Failure::usage(error.to_string(), "use another name"))
}

/// Creates a client of the control server's socket on this machine.
fn client(global: &Global) -> Result<Client, Failure> {
    Client::new(Connection::of_socket(), global.timeout, None, global.show_request)
}

/// Returns the steps that this machine needs. `range` is `None` if the pool exists.
fn steps(host: &HostState, has_context: bool, range: Option<AddressRange>) -> Vec<SetupStep> {
    let done = UnitState { is_active: true, is_enabled: true };
    let mut steps = Vec::new();
    steps.extend((host.control != done).then_some(SetupStep::Control(host.control)));
    steps.extend((!host.is_forwarding).then_some(SetupStep::Forwarding));
    steps.extend((host.agent != done).then_some(SetupStep::Agent(host.agent)));
    steps.extend((!has_context).then_some(SetupStep::Context));
    steps.extend(range.map(SetupStep::Pool));
    steps
}

/// Returns the range of the user, or one that is proposed. No device has responded to probes of its addresses.
fn range(given: Option<AddressRange>, networks: &HostNetworks) -> Result<AddressRange, Failure> {
    let other = "choose addresses of a network of this machine that nothing else uses: --pool FIRST-LAST";
    if let Some(range) = given {
        let objection =
            |networks: &HostNetworks| networks.objection(&range).map_or(Ok(()), |why| Err(unmet(why, other)));
        objection(networks)?;
        host::probe(&range);
        objection(&host::networks()?)?;
        return Ok(range);
    }
    let mut networks = networks.clone();
    for _ in 0..PROPOSALS_MAX {
        let range = networks.propose().map_err(|why| unmet(why, other))?;
        host::probe(&range);
        networks = host::networks()?;
        if networks.objection(&range).is_none() {
            return Ok(range);
        }
    }
    Err(unmet("the network of the default route is too crowded for a proposal", other))
}

/// Returns true if the pool exists.
///
/// # Errors
/// Returns an error if the cluster has other nodes, or a pool of the same name that `quickstart` did not create.
async fn has_pool(client: &Client, host: &HostState, record: &QuickstartRecord) -> Result<bool, Failure> {
    let nodes = client.list(|| Request::get("/v1/nodes")).await?.envelope;
    let names = decode_items::<ObjectHeader>(&nodes, "/items").into_iter().map(|node| node.metadata.name);
    let others: Vec<String> = names.filter(|name| name != host.node.as_str()).take(5).collect();
    if !others.is_empty() {
        return Err(unmet(
            format!("the control server of this machine has other nodes: {}", others.join(", ")),
            format!("quickstart is for one machine; create pools with `tidegate apply` ({})", host::GUIDE),
        ));
    }
    let has_pool = pool(client).await?.is_some();
    if has_pool && !record.has_pool {
        return Err(unmet(
            format!("an AddressPool {NAME} exists that quickstart did not create"),
            format!("use it and omit quickstart, or delete it: `tidegate delete pool {NAME}`"),
        ));
    }
    Ok(has_pool)
}

/// Returns the AddressPool of `quickstart`, if it exists.
async fn pool(client: &Client) -> Result<Option<Value>, Failure> {
    let path = format!("/v1/{}/{NAME}", Kind::AddressPool.plural());
    match client.send(Request::get(path)).await {
        Ok(pool) => Ok(Some(pool)),
        Err(failure) if failure.problem_code() == Some("NotFound") => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the first range of the existing pool.
async fn pool_range(client: &Client) -> Result<Option<AddressRange>, Failure> {
    Ok(pool(client).await?.and_then(|pool| decode(pool.pointer("/spec/addresses/0")?)))
}

/// Checks that the control server accepts the pool, if it is to be created.
async fn check_pool(client: &Client, range: Option<AddressRange>) -> Result<(), Failure> {
    let Some(range) = range else { return Ok(()) };
    client.send(apply(range).query("dryRun", Some("true"))).await.map(drop)
}

/// Returns the request that creates the AddressPool and the Advertisement.
fn apply(range: AddressRange) -> Request {
    let object = |kind: Kind, spec: Value| json!({ "apiVersion": API_VERSION, "kind": kind.as_str(), "metadata": { "name": NAME }, "spec": spec });
    let objects = [
        object(Kind::AddressPool, json!({ "addresses": [range] })),
        object(Kind::Advertisement, json!({ "addressPools": [NAME], "type": "L2" })),
    ];
    let list = json!({ "apiVersion": API_VERSION, "kind": "List", "items": objects });
    Request::post("/v1/apply")
        .body(Language::Json.media_type(), list.to_string())
        .message(Some(REASON.to_owned()))
}

/// Setup of this machine, with the record of the steps that are done.
struct Setup<'a> {
    global: &'a Global,
    host: &'a HostState,
    client: Client,
    record: QuickstartRecord,
    name: Name,
}

impl Setup<'_> {
    async fn perform(
        &mut self,
        step: &SetupStep,
        range: Option<AddressRange>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match step {
            SetupStep::Control(before) => {
                self.record.control.get_or_insert(*before);
                self.record.save()?;
                host::output_of("systemctl", &["enable", "--now", CONTROL])?;
                if !before.is_active {
                    self.check_cluster(range).await?;
                }
            }
            SetupStep::Forwarding => {
                self.record.forwarding = Some(record::forwarding()?);
                self.record.save()?;
                record::permit_forwarding()?;
            }
            SetupStep::Agent(before) => {
                if self.record.agent.is_none() {
                    let node = self.client.send(Request::get(format!("/v1/nodes/{}", self.host.node))).await;
                    match node {
                        Ok(_) => {}
                        Err(failure) if failure.problem_code() == Some("NotFound") => {
                            self.record.node = Some(self.host.node.clone());
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                self.record.agent.get_or_insert(*before);
                self.record.save()?;
                host::output_of("systemctl", &["enable", AGENT])?;
                // The unit is active once the agent has a state, which takes a moment.
                host::output_of("systemctl", &["start", "--no-block", AGENT])?;
            }
            SetupStep::Context => self.create_context().await?,
            SetupStep::Pool(range) => {
                self.record.has_pool = true;
                self.record.save()?;
                self.client.send(apply(*range)).await?;
            }
        }
        terminal.print(&format!("done: {step}\n"))
    }

    /// Checks the cluster of a control server that was just started, and stops the server again if it is unsuitable.
    async fn check_cluster(&mut self, range: Option<AddressRange>) -> Result<(), Failure> {
        let checked = async {
            let has_pool = has_pool(&self.client, self.host, &self.record).await?;
            check_pool(&self.client, range.filter(|_| !has_pool)).await
        };
        let outcome = checked.await;
        if outcome.is_err()
            && let Some(before) = self.record.control.take()
        {
            undo::restore_unit(CONTROL, before)?;
            self.record.save()?;
        }
        outcome
    }

    /// Creates the token and the context of the user who runs the command.
    async fn create_context(&mut self) -> Result<(), Failure> {
        let directory = context::home()?;
        let previous = match self.record.context.take() {
            Some(old) => {
                undo::revoke(&self.client, &old).await?;
                context::remove(&old.directory, &self.name, old.previous.as_ref())?;
                old.previous
            }
            None => current(&directory),
        };
        let body = json!({ "name": NAME, "bindings": [{ "role": "admin" }] });
        let answer = self.client.send(Request::post("/v1/tokens").json(&body)).await?;
        let TokenRow { id, .. } = decode(&answer).unwrap_or_default();
        let TokenText { token } = decode(&answer).unwrap_or_default();
        self.record.context = Some(ContextRecord { directory: directory.clone(), previous, token_id: id });
        self.record.save()?;
        let socket = format!("{}:{}", client::socket::SCHEME, client::socket::PATH_DEFAULT);
        // A context of root keeps working when the server listens at another address for further nodes.
        let is_of_root = std::env::var_os("SUDO_USER").is_none();
        let api = if self.host.is_default_listen && !is_of_root { API } else { &socket };
        context::store(&directory, &self.name, api, self.global, &token)
    }

    /// Waits until the agent has a state and the control server knows its Node as ready.
    async fn wait_until_ready(&self, terminal: &mut Terminal) -> Result<(), Failure> {
        let until = Instant::now() + READY_TIME_MAX;
        while host::output_of("systemctl", &["is-active", AGENT]).is_err() {
            if Instant::now() > until {
                let hint = format!("its log has the reason: `journalctl -u {AGENT}`");
                return Err(unmet("the agent has not become ready", hint));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        wait::for_node(&self.client, &self.host.node, READY_TIME_MAX, terminal).await?;
        wait::for_all_nodes(&self.client, READY_TIME_MAX, terminal).await
    }
}

/// Returns the last lines: the commands that create, await and explain the first Service.
fn closing(own: Option<IpAddr>, context: Option<&ContextRecord>, host: &HostState) -> String {
    let sudo = if std::env::var_os("SUDO_USER").is_some() { "sudo " } else { "" };
    let endpoint = own.map_or_else(|| "ADDRESS".to_owned(), |address| address.to_string());
    let mut text = format!(
        "Node {} is ready. First Service, for a server at port 8080 of this machine (--endpoint has its address):\n  \
         {sudo}tidegate create service web --port 80:8080 --endpoint {endpoint} --address auto\n  \
         {sudo}tidegate wait service web --for ready\n  \
         {sudo}tidegate explain web\n",
        host.node
    );
    if let Some(context) = context.filter(|_| host.is_default_listen) {
        let token = context.directory.join("contexts").join(format!("{NAME}.token"));
        text += &format!("Status page: {API}/ (token: {})\n", token.display());
    }
    text += "Further machines: set `listen = \"ADDRESS:7440\"` in /etc/tidegate/api.toml, restart tidegate-api, and give each \
             the output of `tidegate node join-token NAME`\n";
    text + &format!("Undo: {sudo}tidegate quickstart --undo\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(control: UnitState, agent: UnitState, is_forwarding: bool) -> HostState {
        let node = Name::parse("a").unwrap();
        HostState { control, agent, node, is_default_listen: true, is_forwarding }
    }

    #[test]
    fn a_machine_gets_only_the_steps_that_it_lacks() {
        let (on, off) = (UnitState { is_active: true, is_enabled: true }, UnitState::default());
        let range: AddressRange = "192.0.2.245-192.0.2.254".parse().unwrap();
        assert_eq!(steps(&host(on, on, true), true, None), []);
        let all = steps(&host(off, UnitState { is_active: true, ..off }, false), false, Some(range));
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "start and enable tidegate-api.service, the control server",
                "let this machine forward IPv4 packets (/etc/sysctl.d/90-tidegate-quickstart.conf)",
                "enable tidegate-agent.service, the agent, which joins over the socket of the control server",
                "create the token quickstart with role admin, and the context quickstart with it",
                "create the AddressPool quickstart with 192.0.2.245-192.0.2.254, announced by ARP and NDP \
                 (Advertisement quickstart)",
            ]
        );
    }

    #[test]
    fn the_last_lines_are_commands_that_are_understood() {
        use clap::Parser as _;
        let on = UnitState { is_active: true, is_enabled: true };
        let text = closing("192.0.2.2".parse().ok(), None, &host(on, on, true));
        let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert_eq!(commands.len(), 3, "{text}");
        for command in commands {
            let words = command.trim_start_matches("sudo ").split(' ');
            assert!(crate::args::Cli::try_parse_from(words).is_ok(), "{command}");
        }
    }
}
