//! Puts a source and the engine together, and answers signals.

use std::{
    io::Write as _,
    pin::{Pin, pin},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use model::primitives::name::Label;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cli, Global, Source},
    control::{Control, Place},
    dns, docker,
    engine::{self, Ports, Round, Settings, progress::Progress},
    files, kubernetes, serve,
    wanted::{Observed, Wanted},
};

/// The variable with a token. It is no flag: everybody on a machine sees the arguments of everybody's processes.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// How long `--once` waits for the source to be read to its end.
const SOURCE_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at what the source says of itself.
const LOOK: Duration = Duration::from_millis(50);
/// How long a source may take to give back what it holds, such as a Lease: less than service managers wait.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often a service manager hears how it is going.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// The source's ends of the channels.
pub struct Outlet {
    /// What the source wants.
    pub wanted: watch::Sender<Wanted>,
    /// What Tidegate says of it.
    pub observed: watch::Receiver<Observed>,
    /// Where complaints go.
    pub progress: Arc<Progress>,
    /// The way to Tidegate, to read what others have there.
    pub control: Arc<Control>,
    /// Somebody asks for the end.
    pub stop: CancellationToken,
}

/// Does what the command line says.
///
/// # Errors
/// What stops it, with what to do about it.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, source } = cli;
    let settings = settings(&global, &source)?;
    let control = Arc::new(control(&global, &settings.source)?);
    let (wanted_sender, wanted) = watch::channel(Wanted::default());
    let (observed, observed_receiver) = watch::channel(Observed::default());
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
    let ports = Ports { wanted, observed, consent, progress: Arc::clone(&progress) };
    let mut source = pin!(start(source, outlet));
    if global.once || global.dry_run {
        let code = tokio::select! {
            ended = &mut source => return Err(ended.err().unwrap_or_else(|| anyhow!("the source has ended"))),
            code = once(&control, settings, ports, global.dry_run) => code,
        };
        end(&stop, source).await;
        return code;
    }
    let listener = TcpListener::bind(global.listen).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {}: give another --listen", global.listen))?;
    tracing::info!(listen = %listener.local_addr()?, source = %settings.source, "started");
    tokio::select! {
        ended = &mut source => return ended.and(Err(anyhow!("the source has ended"))),
        () = engine::run(&control, settings, ports, stop.clone()) => {}
        served = serve::serve(listener, Arc::clone(&progress)) => served?,
        watched = signals(consent_sender) => watched?,
        () = tell_service_manager(&progress) => {}
    }
    end(&stop, source).await;
    tracing::info!("stopped; nothing is changed by that");
    Ok(ExitCode::SUCCESS)
}

/// Follows a source until it fails or somebody asks for the end.
async fn start(source: Source, outlet: Outlet) -> anyhow::Result<()> {
    let stop = outlet.stop.clone();
    match source {
        Source::Files(arguments) => until(stop, files::run(arguments, outlet)).await,
        Source::Docker(arguments) => until(stop, docker::run(arguments, outlet)).await,
        Source::Dns(arguments) => until(stop, dns::run(arguments, outlet)).await,
        // It has something to give back first.
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

/// Lets a source end. Nothing writes to Tidegate any more, so it may let another adapter begin.
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
                .map_err(|error| anyhow!("`{id}` cannot be the name of the source: {error}; give --source"))?
        }
    };
    Ok(Settings { source: id, prune_limit: global.prune_limit, allow_empty: global.allow_empty })
}

fn control(global: &Global, source: &Label) -> anyhow::Result<Control> {
    let place = Place {
        urls: global.api.clone(),
        ca_file: global.ca_file.clone(),
        ca_hash: global.ca_hash,
        token_file: global.token_file.clone(),
        token: std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty()),
        author: format!("tidegate-sync/{source}"),
    };
    Ok(Control::new(place)?)
}

/// Waits until the source has been read to its end; `false` when that cannot be. What is there is used then, and nothing is
/// removed.
async fn is_read(ports: &mut Ports, progress: &Progress) -> bool {
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
    mut ports: Ports,
    is_dry_run: bool,
) -> anyhow::Result<ExitCode> {
    let progress = Arc::clone(&ports.progress);
    let is_complete = is_read(&mut ports, &progress).await;
    let round = engine::once(control, settings, ports, is_dry_run).await?;
    let mut out = std::io::stdout().lock();
    let is_done = print(&mut out, &round, is_dry_run)?;
    let mut complaints = std::io::stderr().lock();
    if !is_complete {
        writeln!(complaints, "the source has not been read to its end; nothing is removed")?;
        for line in progress.trouble() {
            writeln!(complaints, "{line}")?;
        }
    }
    Ok(if is_done && is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what was or would be done; answers whether that is everything.
fn print(out: &mut impl std::io::Write, round: &Round, is_dry_run: bool) -> std::io::Result<bool> {
    let Round { plan, refused } = round;
    for write in plan.writes.iter().filter(|write| !refused.contains_key(&write.key)) {
        writeln!(out, "{} {}", if write.is_new { "create" } else { "replace" }, write.key)?;
    }
    for key in plan.removals.iter().filter(|key| !refused.contains_key(key)) {
        writeln!(out, "remove {key}")?;
    }
    for key in &plan.held {
        writeln!(out, "held {key}: too many removals at once; --prune-limit or --allow-empty allows them")?;
    }
    for key in &plan.waiting {
        writeln!(out, "keep {key}: the source has not been read to its end")?;
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

/// Waits for a signal to end; passes on the one that confirms what is held.
async fn signals(consent: mpsc::Sender<()>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut confirm = signal(SignalKind::user_defined1())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            // Confirming twice is confirming once.
            _ = confirm.recv() => drop(consent.try_send(())),
        }
    }
}

/// Tells systemd that Tidegate has become equal to the source for the first time, and from then on what is not as it should
/// be. Without a service manager nobody is told.
async fn tell_service_manager(progress: &Progress) {
    let mut is_ready = false;
    loop {
        let trouble = progress.trouble();
        is_ready |= trouble.is_empty();
        let status = trouble.first().map_or("Tidegate is equal to the source", String::as_str);
        let mut states = vec![sd_notify::NotifyState::Status(status), sd_notify::NotifyState::Watchdog];
        if is_ready {
            states.push(sd_notify::NotifyState::Ready);
        }
        // Nothing depends on it.
        let _told = sd_notify::notify(&states);
        tokio::time::sleep(STATUS_INTERVAL).await;
    }
}
