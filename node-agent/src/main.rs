//! Command `tidegate-agent`: the agent itself and its subcommands.

use std::{
    ffi::OsString,
    io::{BufRead as _, IsTerminal as _, Read as _, Write as _},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use conntrack::KernelFlows;
use dataplane::{
    BackendOptions,
    userspace::process::{self, EndedRelays, OWN_PROGRAM, Relays},
};
use kernel::service_routes::{self, KernelServiceRoutes};
use model::{
    kinds::node::{Naming, ProxyMode},
    primitives::{quantity::Epoch, secret::Secret},
    wire::{doctor::FindingState, feed::NodeState},
};
use node_agent::{
    agent::Kernel,
    alive,
    config::{
        Config, LOG_DEFAULT, announcing, check_listen, check_mode, check_proxy,
        options::{Cli, Command, LogFormat, Options, OutputFormat},
    },
    doctor::{self, Subject},
    hold::consent,
    journal::{
        self,
        lock::{LockError, StateDirLock},
    },
    peer_key, preflight, run,
    state::defaults::{Backend, ProxyDefaults},
    workload_network::{SOCKET_FILE, command},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use tracing_subscriber::EnvFilter;

/// Number of worker threads of the async runtime for network I/O. The control loop has its own thread.
const NETWORK_THREADS: usize = 2;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;

fn main() -> ExitCode {
    match settings::parse_or_exit(settings::Rules::default()).map_err(Into::into).and_then(execute) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the error has no other destination.
            let _gone = writeln!(std::io::stderr(), "tidegate-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(cli: Cli) -> anyhow::Result<()> {
    let Cli { config: _, options, command } = cli;
    match command.unwrap_or(Command::Run) {
        Command::Run => {
            let log_arguments = log_arguments(&options);
            run_agent(configure(options)?, log_arguments)
        }
        Command::Attach(arguments) => {
            let state_dir = configure(options)?.state_dir;
            say(&on_socket(command::attach(&state_dir, arguments))?);
            Ok(())
        }
        Command::Detach(arguments) => {
            let state_dir = configure(options)?.state_dir;
            say(&on_socket(command::detach(&state_dir, arguments))?);
            Ok(())
        }
        Command::Relay { mark, successor } => run_relay(options, mark, successor),
        Command::Manual { share } => {
            man_pages::write(Cli::command(), man_pages::Section::Administration, &share)
                .context("the manual was not written")
        }
        Command::Cleanup { force } => cleanup(&configure(options)?, force),
        Command::Confirm { epoch } => confirm_state(&configure(options)?, Epoch(epoch)),
        Command::Healthcheck => {
            let listen = check_listen(options.listen.as_deref())?;
            let said = alive::ask(listen).with_context(|| format!("the agent at {listen} is not well"))?;
            say(said.trim_end());
            Ok(())
        }
        Command::Preflight { no_load, output } => {
            announcing::check(options.announcing)?;
            preflight(check_mode(options.proxy.mode.as_deref())?, !no_load, output)
        }
        Command::Doctor { all, fix, yes, output } => {
            let Backend { mode, options } = check_proxy(options.proxy)?.backend(&NodeState::default());
            examine(&Subject { mode, options }, &Examination { all, fix, yes, output })
        }
    }
}

/// Runs a request to the socket of the agent on this machine.
fn on_socket(request: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(request)
}

/// Validates the settings and initializes logging.
fn configure(options: Options) -> anyhow::Result<Config> {
    let has_log_setting = options.log.is_some();
    let host_name = nix::unistd::gethostname().context("the host name cannot be read")?;
    let mut config = Config::from_options(options, &host_name.to_string_lossy())?;
    // Environment variable instead of a flag: process arguments are visible to all users of the machine.
    config.enrolment.join_token = std::env::var("TIDEGATE_JOIN_TOKEN").ok().map(Secret::new);
    start_log(&config.log, config.log_format, has_log_setting)?;
    Ok(config)
}

/// Returns the log flags for a relay process, so that its log matches the agent's.
fn log_arguments(options: &Options) -> Vec<OsString> {
    let log = options.log.iter().flat_map(|log| ["--log", log]);
    let format = options.log_format.iter().flat_map(|format| ["--log-format", format.as_str()]);
    log.chain(format).map(OsString::from).collect()
}

/// Runs a userspace relay process. On standard output the process reports that it is ready, or the error that
/// prevents it.
fn run_relay(options: Options, mark: u32, is_successor: bool) -> anyhow::Result<()> {
    let Options { state_dir, log, log_format, .. } = options;
    let state_dir = state_dir.context("the relay command needs --state-dir")?;
    start_log(log.as_deref().unwrap_or(LOG_DEFAULT), log_format.unwrap_or_default(), log.is_some())?;
    let heap_in_use_bytes = || allocator::Figures::read().map(|figures| figures.in_use_bytes);
    let orders = process::RelayOrders { state_dir, mark, is_successor, heap_in_use_bytes };
    let ended = process::run(&orders, || say(process::READY));
    if let Err(error) = &ended {
        say(&format!("{error:#}"));
    }
    ended
}

/// Runs the preflight checks. Needs only the proxy mode, because the command must work on a machine without
/// configuration.
fn preflight(mode: ProxyMode, load: bool, output: OutputFormat) -> anyhow::Result<()> {
    let report = preflight::run(mode, load);
    match output {
        OutputFormat::Table => say(preflight::show::table(&report).trim_end()),
        OutputFormat::Json => say(&serde_json::to_string_pretty(&report)?),
    }
    let missing: Vec<_> = report.missing().map(|finding| finding.need.as_str()).collect();
    if !report.usable {
        bail!("--mode {} cannot be used here: {} missing", mode.as_str(), missing.join(", "));
    }
    Ok(())
}

/// Options of the `doctor` command, other than the proxy settings.
struct Examination {
    all: bool,
    fix: bool,
    yes: bool,
    output: OutputFormat,
}

/// Runs the `doctor` command. Like `preflight`, the command needs only the proxy settings.
fn examine(subject: &Subject, examination: &Examination) -> anyhow::Result<()> {
    let Examination { all, fix, yes, output } = *examination;
    let mut findings = doctor::examine(subject);
    if fix {
        // Standard output may carry the JSON report, so messages about fixes go to standard error.
        let tell = |line: &str| {
            let _gone = writeln!(std::io::stderr(), "{line}");
        };
        let fixes = doctor::helpful(&findings);
        if fixes.is_empty() {
            tell("nothing was found that --fix puts right");
        } else {
            let names: Vec<_> = fixes.iter().map(|fix| fix.as_str()).collect();
            confirm(&format!("make these fixes on this machine: {}", names.join(", ")), yes)?;
            tell(doctor::show::done(&doctor::make(&fixes, subject.mode)).trim_end());
            findings = doctor::examine(subject);
        }
    }
    match output {
        OutputFormat::Table => say(doctor::show::table(&findings, all).trim_end()),
        OutputFormat::Json => say(&serde_json::to_string_pretty(&findings)?),
    }
    let broken = findings.iter().filter(|finding| finding.state == FindingState::Broken);
    let broken: Vec<_> = broken.map(|finding| finding.check.as_str()).collect();
    if !broken.is_empty() {
        bail!("broken: {}", broken.join(", "));
    }
    Ok(())
}

/// Prompts for confirmation on the terminal. Without a terminal, `--yes` is required.
fn confirm(what: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    let (input, mut error) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() {
        bail!("to {what}, say --yes: there is no terminal to ask at");
    }
    write!(error, "{what}? [y/N] ")?;
    let mut answer = String::new();
    input.lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was changed"),
    }
}

/// Maximum size of the reply to a confirmation prompt, in bytes.
const ANSWER_BYTES_MAX: u64 = 64;

fn start_log(log: &str, format: LogFormat, has_setting: bool) -> anyhow::Result<()> {
    let from_environment = || EnvFilter::try_from_default_env().ok().filter(|_| !has_setting);
    let filter = match from_environment() {
        Some(filter) => filter,
        None => EnvFilter::try_new(log).with_context(|| {
            format!("--log `{log}` must be a filter such as `info` or `warn,node_agent=debug`")
        })?,
    };
    // If the reader of the log is gone, reporting the log error to the same pipe would end the task that
    // logs.
    let log = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn run_agent(config: Config, log_arguments: Vec<OsString>) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(NETWORK_THREADS).enable_all().build()?;
    runtime.block_on(async {
        let mut config = config;
        let export = traces::Export::from_environment(("tidegate-agent", env!("CARGO_PKG_VERSION")))?;
        config.telemetry = export.as_ref().map(traces::Export::telemetry).unwrap_or_default();
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stopper = stop.clone();
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            stopper.cancel();
            info!("stopping; the kernel stays as it is");
        });
        let relays =
            Relays { state_dir: config.state_dir.clone(), program: OWN_PROGRAM.into(), log_arguments };
        let kernel = Kernel {
            open: relays.opener(),
            flows: Box::new(KernelFlows::default()),
            routes: Box::new(KernelServiceRoutes::default()),
        };
        let node = config.node.clone();
        let (ready, is_ready) = oneshot::channel();
        tokio::spawn(async move {
            if let Ok(run::Ready { listen, mode }) = is_ready.await {
                info!(%node, mode = mode.as_str(), %listen, "ready");
                say(&format!("tidegate-agent {node} ready"));
            }
        });
        let ended = run::run(config, kernel, stop, ready).await;
        if let Some(export) = export {
            export.end(traces::END_PATIENCE).await;
        }
        ended
    })
}

/// Maximum time to wait until the agent has read the confirmation file. The agent looks for the file once a
/// second.
const CONSENT_PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks if the agent has read the confirmation file.
const CONSENT_POLL: Duration = Duration::from_millis(50);

/// Writes the confirmation of a state that the running agent holds, and removes it if the agent does not read
/// it in time.
fn confirm_state(config: &Config, epoch: Epoch) -> anyhow::Result<()> {
    let (dir, shown) = (&config.state_dir, config.state_dir.display());
    if !dir.exists() || StateDirLock::acquire(dir).is_ok() {
        bail!("no agent runs with --state-dir {shown}");
    }
    consent::give(dir, epoch).with_context(|| format!("nothing can be written to --state-dir {shown}"))?;
    let until = Instant::now() + CONSENT_PATIENCE;
    while Instant::now() < until {
        if consent::given(dir).is_none() {
            say(&format!("the agent takes the state of epoch {epoch}"));
            return Ok(());
        }
        std::thread::sleep(CONSENT_POLL);
    }
    // The agent may pick up the consent at this very moment; then there is no file left to remove.
    let is_unused = consent::remove(dir).context("the consent that was not used cannot be removed")?;
    if is_unused {
        bail!("the agent holds back no state of epoch {epoch}; its log and /v1/state say what it holds back");
    }
    say(&format!("the agent takes the state of epoch {epoch}"));
    Ok(())
}

fn cleanup(config: &Config, force: bool) -> anyhow::Result<()> {
    let dir = &config.state_dir;
    let lock = hold_for_cleanup(dir, force)?;
    for line in clean_all(dir, &config.proxy)? {
        say(&line);
    }
    let shown = dir.display();
    let remove = || {
        let attachments = network::attach::journal::remove(dir)?;
        let interfaces = network::attach::declared::file::remove(dir)?;
        let socket = network::serve::remove(&dir.join(SOCKET_FILE))?;
        Ok::<_, std::io::Error>([
            journal::remove(dir)?,
            peer_key::remove(dir)?,
            attachments,
            interfaces,
            socket,
        ])
    };
    if lock.is_some() {
        let removed = remove().with_context(|| format!("the saved state in {shown} was not removed"))?;
        if removed.contains(&true) {
            say(&format!("removed the saved state in {shown}"));
        }
    }
    Ok(())
}

/// Removes the kernel objects of every mode. An error is ignored for every mode except the configured one: a
/// mode that this machine does not support fails, but cannot have left objects.
fn clean_all(dir: &Path, proxy: &ProxyDefaults) -> anyhow::Result<Vec<String>> {
    let configured = proxy.backend(&NodeState::default());
    let mut lines = Vec::new();
    let EndedRelays { processes, objects } = process::end_all(dir)?;
    if processes > 0 {
        lines.push(format!("ended {processes} relay processes, and their connections"));
    }
    if objects > 0 {
        lines.push(format!("removed {objects} objects from the kernel (userspace)"));
    }
    lines.extend(end_other_relays(dir)?);
    for mode in ProxyMode::ALL.iter().copied() {
        let configured =
            if mode == configured.mode { &configured.options } else { &BackendOptions::default() };
        let asked = [proxy.naming, Naming::Tidegate];
        let mut backends =
            asked.map(|naming| Backend::of(mode, &BackendOptions { naming, ..configured.clone() })).to_vec();
        backends.dedup();
        for Backend { mode, options } in backends {
            let name = mode.as_str();
            let cleaned = dataplane::open(mode, &options)
                .map_err(anyhow::Error::from)
                .and_then(|mut dataplane| dataplane.cleanup().context("the kernel was not cleaned up"));
            match cleaned {
                Ok(0) => {}
                Ok(count) => lines.push(format!("removed {count} objects from the kernel ({name})")),
                Err(error) if mode == proxy.mode => {
                    return Err(error.context(format!("--mode {name} cannot be used")));
                }
                Err(error) => debug!(mode = name, error = format!("{error:#}"), "nothing can be cleaned up"),
            }
        }
    }
    match announce::ping::cleanup() {
        Ok(false) => {}
        Ok(true) => lines.push("removed the table that answers to pings of announced addresses".to_owned()),
        Err(error) => debug!(%error, "nothing of announced addresses can be cleaned up"),
    }
    match dataplane::policy::keeper::cleanup() {
        Ok(false) => {}
        Ok(true) => lines.push("removed the table of network policy".to_owned()),
        Err(error) => debug!(%error, "nothing of network policy can be cleaned up"),
    }
    match service_routes::cleanup() {
        Ok(0) => {}
        Ok(count) => lines.push(format!("removed {count} routes and rules to the Service ranges")),
        Err(error) => debug!(%error, "no routes to the Service ranges can be cleaned up"),
    }
    match network::cleanup::cleanup() {
        Ok(0) => {}
        Ok(count) => lines.push(format!("removed {count} routes and interfaces of workload networks")),
        Err(error) => debug!(%error, "nothing of workload networks can be cleaned up"),
    }
    // The saved state has the former settings, and is removed afterwards.
    let restored = network::cleanup::restore_interfaces(dir)
        .with_context(|| format!("the interfaces in {} were not restored", dir.display()))?;
    if restored > 0 {
        lines.push(format!("restored the settings of {restored} interfaces that Workloads declare"));
    }
    if lines.is_empty() {
        lines.push("nothing of Tidegate was in the kernel".to_owned());
    }
    Ok(lines)
}

/// Ends the relay processes of other state directories in this network namespace, except those of a running agent.
/// Returns a line for each directory.
fn end_other_relays(dir: &Path) -> anyhow::Result<Vec<String>> {
    let own = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let relays = process::relays_of_namespace().context("the relay processes cannot be listed")?;
    let mut lines = Vec::new();
    for (other, pids) in relays {
        let is_ours = other == own;
        let lock = if is_ours { None } else { StateDirLock::acquire(&other).ok() };
        let shown = other.display();
        let count = pids.len();
        if !is_ours && lock.is_none() && other.exists() {
            lines.push(format!("left {count} relay processes of --state-dir {shown}, whose agent runs"));
            continue;
        }
        let EndedRelays { processes, objects } = process::end_all(&other)?;
        if processes > 0 {
            lines.push(format!(
                "ended {processes} relay processes of --state-dir {shown}, and their connections"
            ));
        }
        if objects > 0 {
            lines.push(format!("removed {objects} objects from the kernel (userspace)"));
        }
        let left: Vec<String> = process::remaining(&pids).iter().map(ToString::to_string).collect();
        if !left.is_empty() {
            lines.push(format!(
                "left the relay processes {} of --state-dir {shown}, which have no socket there: end them with `kill`",
                left.join(", ")
            ));
        }
    }
    Ok(lines)
}

/// Locks the state directory so that no agent starts during the cleanup. Returns `None` if the directory does
/// not exist, or with `--force` while an agent is running.
fn hold_for_cleanup(dir: &Path, force: bool) -> anyhow::Result<Option<StateDirLock>> {
    if !dir.exists() {
        return Ok(None);
    }
    match StateDirLock::acquire(dir) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Held { .. }) if force => {
            say(&format!(
                "{error}; it will put everything back within seconds, and its saved state is left alone"
            ));
            Ok(None)
        }
        Err(error @ LockError::Held { .. }) => {
            Err(error).context("nothing was removed; stop the agent first, or add --force")
        }
        Err(error @ LockError::Io(_)) => Err(error).context("nothing was removed"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    // A closed standard output does not stop the agent.
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
}
