//! Runs a source and the engine, which writes the source's objects to Tidegate, and handles signals.

use std::{
    io::Write as _,
    pin::{Pin, pin},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use base::service_manager::Notifier;
use client::{Connection, Token, TokenSource};
use daemon::status;
use model::{kinds::resource::Kind, primitives::name::Label};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cli, Global, Source},
    control::{self, Control},
    dns, docker,
    engine::{self, EngineChannels, Round, Settings, outlet::Outlet, progress::Progress},
    files, kubernetes, serve,
    wanted::{DesiredObjects, ObservedObjects},
};

/// Environment variable with a token. There is no flag for the token itself, because process arguments are
/// visible to all users of a machine.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Maximum time that `--once` waits for the source to be read completely.
const SOURCE_PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which the source's errors are read while `--once` waits for the source.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum time for a source to release resources such as a Lease; shorter than the stop timeout of service
/// managers.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Interval of status notifications to the service manager.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Runs `tidegate-sync` with the parsed command line, until it is stopped or, with `--once`, has written the
/// objects.
///
/// # Errors
/// Returns the error that stops the process, with its remedy.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, source } = cli;
    let settings = settings(&global, &source)?;
    let control = Arc::new(connect(&global, &settings.source)?);
    let (wanted_sender, wanted) = watch::channel(DesiredObjects::default());
    let (observed, observed_receiver) = watch::channel(ObservedObjects::default());
    let progress = Arc::new(Progress::default());
    let (consent_sender, consent) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let outlet = Outlet {
        wanted: wanted_sender,
        observed: observed_receiver,
        progress: Arc::clone(&progress),
        control: Arc::clone(&control),
        stop: stop.clone(),
    };
    let ports = EngineChannels { wanted, observed, consent, progress: Arc::clone(&progress) };
    let mut source = pin!(start(source, outlet));
    if global.once || global.dry_run {
        let code = tokio::select! {
            ended = &mut source => return Err(ended.err().unwrap_or_else(|| anyhow!("the source ended \
                                                                                     unexpectedly"))),
            code = once(&control, settings, ports, global.dry_run) => code,
        };
        end(&stop, source).await;
        return code;
    }
    let listener = TcpListener::bind(global.listen).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {}: choose another --listen", global.listen))?;
    tracing::info!(listen = %listener.local_addr()?, source = %settings.source, "started");
    tokio::select! {
        ended = &mut source => return ended.and(Err(anyhow!("the source ended unexpectedly"))),
        () = engine::run(&control, settings, ports, stop.clone()) => {}
        served = status::serve(listener, serve::routes(Arc::clone(&progress))) => served?,
        watched = signals(consent_sender) => watched?,
        () = tell_service_manager(&progress) => {}
    }
    end(&stop, source).await;
    tracing::info!("stopped; all objects stay in place");
    Ok(ExitCode::SUCCESS)
}

/// Runs a source until it fails or is stopped.
async fn start(source: Source, outlet: Outlet) -> anyhow::Result<()> {
    let stop = outlet.stop.clone();
    match source {
        Source::Files(arguments) => until(stop, files::run(arguments, outlet)).await,
        Source::Docker(arguments) => until(stop, docker::run(arguments, outlet)).await,
        Source::Dns(arguments) => until(stop, dns::run(arguments, outlet)).await,
        // The source releases its Lease before it ends.
        Source::Kubernetes(arguments) => kubernetes::run(arguments, outlet).await,
    }
}

async fn until(
    stop: CancellationToken,
    source: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = source => ended,
        () = stop.cancelled() => Ok(()),
    }
}

/// Stops a source and waits for its end for a limited time. The engine no longer writes at this point, so
/// another adapter may take over.
async fn end(stop: &CancellationToken, source: Pin<&mut impl Future<Output = anyhow::Result<()>>>) {
    stop.cancel();
    if tokio::time::timeout(END_PATIENCE, source).await.is_err() {
        tracing::warn!("the source did not end within {} s", END_PATIENCE.as_secs());
    }
}

fn settings(global: &Global, source: &Source) -> anyhow::Result<Settings> {
    let id = match &global.source_id {
        Some(id) => id.clone(),
        None => {
            let id = source.default_id()?;
            Label::parse(&id)
                .map_err(|error| anyhow!("`{id}` is not a valid source name: {error}; give --source"))?
        }
    };
    let uncounted = match source {
        // The removal of each pod is reported by the cluster, or follows from a list with other pods that are known.
        Source::Kubernetes(_) => Some(Kind::Workload),
        Source::Files(_) | Source::Docker(_) | Source::Dns(_) => None,
    };
    let Global { prune_limit, allow_empty, .. } = *global;
    Ok(Settings { source: id, prune_limit, allow_empty, uncounted })
}

fn connect(global: &Global, source: &Label) -> anyhow::Result<Control> {
    let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let token = match (global.token_file.clone(), variable) {
        (Some(path), _) => TokenSource::File(path),
        (None, Some(text)) => TokenSource::Fixed(Token::parse(&text, TOKEN_VARIABLE)?),
        (None, None) => TokenSource::None,
    };
    let connection = Connection {
        urls: global.api.clone(),
        ca_file: global.ca_file.clone(),
        pin: global.ca_hash,
        identity: None,
        token,
    };
    Ok(control::connect(connection, format!("tidegate-sync/{source}"))?)
}

/// Waits until the source has been read completely. Returns `false` if the source reports errors or is not
/// read within [`SOURCE_PATIENCE`]; the command then uses the objects read so far and removes nothing.
async fn is_read(ports: &mut EngineChannels, progress: &Progress) -> bool {
    let is_complete = async { ports.wanted.wait_for(|wanted| wanted.is_complete).await.is_ok() };
    let is_hopeless = async {
        while !progress.has_complaints() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        biased;
        is_complete = is_complete => is_complete,
        () = is_hopeless => false,
        () = tokio::time::sleep(SOURCE_PATIENCE) => false,
    }
}

async fn once(
    control: &Control,
    settings: Settings,
    mut ports: EngineChannels,
    is_dry_run: bool,
) -> anyhow::Result<ExitCode> {
    let progress = Arc::clone(&ports.progress);
    let is_complete = is_read(&mut ports, &progress).await;
    let round = engine::once(control, settings, ports, is_dry_run).await?;
    let mut out = std::io::stdout().lock();
    let is_done = print(&mut out, &round, is_dry_run)?;
    let mut complaints = std::io::stderr().lock();
    if !is_complete {
        writeln!(complaints, "the source has not been read completely; nothing is removed")?;
        for line in progress.trouble() {
            writeln!(complaints, "{line}")?;
        }
    }
    Ok(if is_done && is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the changes of a single reconciliation, or the planned ones in a dry run. Returns true if no change
/// was rejected and none waits for confirmation.
fn print(out: &mut impl std::io::Write, round: &Round, is_dry_run: bool) -> std::io::Result<bool> {
    let Round { plan, refused } = round;
    for write in plan.writes.iter().filter(|write| !refused.contains_key(&write.key)) {
        writeln!(out, "{} {}", if write.is_new { "create" } else { "replace" }, write.key)?;
    }
    for key in plan.removals.iter().filter(|key| !refused.contains_key(key)) {
        writeln!(out, "remove {key}")?;
    }
    for key in &plan.held {
        writeln!(
            out,
            "held {key}: too many removals at once; allow them with --prune-limit or \
                       --allow-empty"
        )?;
    }
    for key in &plan.waiting {
        writeln!(out, "keep {key}: the source has not been read completely")?;
    }
    for (key, why) in refused {
        writeln!(out, "refused {key}: {why}")?;
    }
    if is_dry_run
        && plan.writes.is_empty()
        && plan.removals.is_empty()
        && plan.held.is_empty()
        && refused.is_empty()
    {
        writeln!(out, "nothing to do")?;
    }
    Ok(plan.held.is_empty() && refused.is_empty())
}

/// Waits for SIGTERM or SIGINT. Sends a message to `consent` for each SIGUSR1, by which the operator confirms
/// removals.
async fn signals(consent: mpsc::Sender<()>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut confirm = signal(SignalKind::user_defined1())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            // One pending confirmation is enough.
            _ = confirm.recv() => drop(consent.try_send(())),
        }
    }
}

/// Notifies systemd when Tidegate first matches the source, and of problems from then on. No-op without a
/// service manager.
async fn tell_service_manager(progress: &Progress) {
    let notifier = Notifier::of_environment();
    let mut is_ready = false;
    loop {
        let trouble = progress.trouble();
        is_ready |= trouble.is_empty();
        let status = trouble.first().map_or("in sync with the source", String::as_str);
        let ready = if is_ready { "\nREADY=1" } else { "" };
        // A line break would begin another assignment.
        notifier.say(&format!("STATUS={}\nWATCHDOG=1{ready}", status.replace('\n', " ")));
        tokio::time::sleep(STATUS_INTERVAL).await;
    }
}
