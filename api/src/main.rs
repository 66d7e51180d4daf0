//! `tidegate-api`: reads the configuration, opens the store, and serves until it is stopped.

use std::{
    error::Error,
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use api::{
    Tls,
    base::{
        clock_and_random::{Source, System},
        config::{Config, LogFormat},
    },
    context::server_state::ServerState,
    server::{
        commands::{self, Cli},
        self_service::{self as publish, Publication},
        serve::{listen as listen_at, listen_socket as listen_on_socket, passed_socket, serve, serve_socket},
        watchdog,
    },
};
use base::service_manager::Notifier;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    net::UnixListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;

fn main() -> ExitCode {
    let outcome = run();
    if let Err(error) = &outcome {
        let chain: Vec<_> = error.chain().map(ToString::to_string).collect();
        // If stderr is closed, there is no way to report the error.
        let _ = writeln!(std::io::stderr(), "tidegate-api: {}", chain.join(": "));
    }
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run() -> anyhow::Result<()> {
    let Cli { flags, command } = settings::parse_or_exit(settings::Rules::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    if let Some(command) = command {
        return runtime.block_on(commands::run(command, flags));
    }
    let config = Config::load(flags)?;
    start_log(&config)?;
    raise_descriptor_limit();
    runtime.block_on(run_server(config))
}

/// Raises the soft limit of open files: thousands of agents and watchers need more than the usual 1,024
/// descriptors.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

fn start_log(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log)
        .with_context(|| format!("--log {} is not a valid filter", config.log))?;
    // If stderr is closed, reporting the log error on the same pipe would end the task that logs.
    let builder = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started: Result<(), Box<dyn Error + Send + Sync>> = match config.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log could not be started: {error}"))
}

async fn run_server(config: Config) -> anyhow::Result<()> {
    let Config {
        listen,
        listen_socket,
        store,
        store_options,
        is_new_epoch,
        bootstrap_token_file,
        publish_as,
        mut settings,
        log: _,
        log_format: _,
    } = config;
    let export = traces::Export::from_environment(("tidegate-api", env!("CARGO_PKG_VERSION")))?;
    let traces::Telemetry { tracer, metrics } =
        export.as_ref().map(traces::Export::telemetry).unwrap_or_default();
    settings.tracer = tracer;
    let source: Arc<dyn Source> = Arc::new(System);
    let store = store::open_with(&store, &store_options, source.now()).await?;
    if is_new_epoch {
        let position = store.raise_epoch(source.now()).await.context("--new-epoch")?;
        tracing::info!(%position, "a new epoch of the store begins");
    }
    let (is_insecure, speaks_tls, replica_name) =
        (settings.is_insecure, settings.tls.is_some(), settings.replica_name.clone());
    let running =
        ServerState::start(settings, Arc::clone(&store), source).await.context("the store cannot be read")?;
    if api::bootstrap(&running.app, &bootstrap_token_file).await? {
        // Log the path only, never the token.
        tracing::warn!(
            file = %bootstrap_token_file.display(),
            "a bootstrap token with full permissions was written; create other tokens with it, then \
             revoke it"
        );
    }
    let listener = listen_at(listen).with_context(|| format!("--listen {listen}"))?;
    let address = listener.local_addr().context("the listener has no address")?;
    let sockets = open_sockets(listen_socket.as_deref())?;
    let publication = match publish_as {
        Some(service) => Some(Publication::of(service, &replica_name, address)?),
        None => None,
    };
    let tls = if speaks_tls { Some(Tls::start(&running.app).await?) } else { None };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let stop = CancellationToken::new();
    // Install the handlers before announcing the server, because a stop signal may follow at once.
    let signals = Signals::catch()?;
    let server = tokio::spawn(serve(listener, Arc::clone(&running.app), tls, stop.clone()));
    let on_sockets: Vec<_> = sockets
        .into_iter()
        .map(|socket| tokio::spawn(serve_socket(socket, Arc::clone(&running.app), stop.clone())))
        .collect();
    if is_insecure {
        tracing::warn!(
            %address,
            "INSECURE: anybody who can reach this address can change everything; --insecure is for labs"
        );
    }
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "serving");
    writeln!(std::io::stdout(), "tidegate-api listening on {scheme}://{address}")
        .context("stdout is gone")?;
    let notifier = Arc::new(Notifier::of_environment());
    notifier.say(&format!("READY=1\nSTATUS=serving at {address}"));
    let watchdog = tokio::spawn(watchdog::feed(Arc::clone(&running.app), Arc::clone(&notifier)));
    let publishing = publication.map(|one| tokio::spawn(publish::run(Arc::clone(&running.app), one)));
    let metrics = metrics.map(|export| {
        let app = Arc::clone(&running.app);
        tokio::spawn(export.run(move || api::metrics_text(&app)))
    });
    signals.wait().await;
    watchdog.abort();
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    if let Some(publishing) = publishing {
        publishing.abort();
    }
    notifier.say("STOPPING=1");
    tracing::info!("stopping");
    running.stop_streams();
    stop.cancel();
    server.await.context("the server task panicked")?;
    for on_socket in on_sockets {
        on_socket.await.context("the server task of the socket panicked")?;
    }
    running.stop().await;
    store.resign().await;
    if let Some(export) = export {
        export.end(traces::END_PATIENCE).await;
    }
    Ok(())
}

/// Returns the Unix sockets to serve: the one of `--listen-socket`, and the one that the service manager has opened.
fn open_sockets(listen_socket: Option<&Path>) -> anyhow::Result<Vec<UnixListener>> {
    let open =
        |path: &Path| listen_on_socket(path).with_context(|| format!("--listen-socket {}", path.display()));
    let own = listen_socket.map(open).transpose()?;
    let passed = passed_socket().context("the service manager has passed an unusable socket")?;
    Ok(own.into_iter().chain(passed).collect())
}

/// SIGTERM and SIGINT, either of which shuts down the server gracefully.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("no handler for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("no handler for SIGINT")?,
        })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
