//! Start of all parts of the server, and its end.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use base::service_manager::Notifier;
use daemon::status;
use model::discovery::dns::{Zone, ZoneSettings};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use replica::Follower;
use rustls::ClientConfig;
use tls_trust::Trust;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Args, UpstreamServer, UpstreamSetting},
    forward::{CacheOptions, Forwarder},
    keys,
    listen::{Certificate, CertificateFiles, Sockets, TLS_PROTOCOL},
    message::TtlLimits,
    metrics::Metrics,
    notify::ChangeNotifier,
    responder::{Responder, ResponderOptions},
    serve::{ExternalDns, StatusReporter, host_name, routes},
    state::{self, AnnouncedFollower, StoredState, ZoneSink},
    update::{UpdateQueue, UpdateWriter},
};

/// Program and version in requests to control servers.
const USER_AGENT: &str = concat!("tidegate-dns/", env!("CARGO_PKG_VERSION"));

/// Raises the soft limit of open files: each question to an upstream server over UDP has a socket, so that 1,000 at once exceed the usual
/// limit of 1,024.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        // The unit of systemd sets the limit and forbids to change it.
        tracing::debug!(%error, "the limit of open files could not be raised");
    }
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// Returns the error that stops the process, with its remedy.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(own) = args.upstream.iter().find(|upstream| is_own(&args, upstream)) {
        anyhow::bail!(
            "--upstream {own} is an address of --listen or --tls-listen: questions would be forwarded in a loop"
        );
    }
    raise_file_limit();
    let certificate = certificate(&args)?;
    let sockets = Sockets::bind(&args.listen, &args.tls_listen).map_err(|(address, error)| {
        anyhow::Error::new(error).context(format!(
            "cannot listen on {address}: choose another --listen or --tls-listen, stop the other DNS server, or grant \
             CAP_NET_BIND_SERVICE"
        ))
    })?;
    let status_listener = TcpListener::bind(args.status_listen).await;
    let status_listener = status_listener.with_context(|| {
        format!("cannot listen on {}: choose another --status-listen", args.status_listen)
    })?;
    let client = args.control.client(USER_AGENT)?;
    let metrics = Arc::new(Metrics::default());
    let settings = zone_settings(&args);
    let (sender, zones) = watch::channel(restored(&args, &settings, &metrics));
    let tls = Arc::new(upstream_tls(&args)?);
    let upstream = (args.upstream.clone(), args.upstream_policy);
    let forwarder = Forwarder::new(upstream, &tls, cache_options(&args), Arc::clone(&metrics));
    let options = ResponderOptions {
        clients: args.client_network.clone(),
        follows_search_path: args.autopath,
        prefers_near: args.nearest,
        control_names: args
            .control
            .api
            .iter()
            .filter_map(|url| url.domain().map(str::to_ascii_lowercase))
            .collect(),
    };
    let key_client = args.control.client(USER_AGENT)?;
    let (key_follower, keys) = keys::follow(key_client, zones.clone(), args.state_dir.clone());
    let (updates, queue) = UpdateQueue::new();
    let writer = UpdateWriter::new(args.control.client(USER_AGENT)?, zones.clone(), queue);
    let external_dns = external_dns(&args, &zones, &updates).await?;
    let views = (zones.clone(), keys.clone(), updates);
    let responder = Arc::new(Responder::new(options, views, forwarder.clone(), Arc::clone(&metrics)));
    let sources = args.listen.iter().map(|address| address.ip()).collect();
    let changes = ChangeNotifier::new(zones.clone(), keys, sources, Arc::clone(&metrics));
    let announced = AnnouncedFollower { client: args.control.client(USER_AGENT)?, zones: sender.clone() };
    let sink = ZoneSink { settings, zones: sender, metrics: Arc::clone(&metrics) };
    let follower = Follower { client, kinds: &state::KINDS, sink };
    let reporter = StatusReporter {
        client: args.control.client(USER_AGENT)?,
        servers: args.control.api.len(),
        name: args.name.clone().or_else(host_name),
        zones: zones.clone(),
        metrics: Arc::clone(&metrics),
        names: Arc::clone(responder.names()),
        forwarder: forwarder.clone(),
    };
    let status_routes = routes(metrics, Arc::clone(&responder));
    let stop = CancellationToken::new();
    let upstream: Vec<_> = args.upstream.iter().map(ToString::to_string).collect();
    tracing::info!(listen = ?args.listen, domain = %args.domain, ?upstream, "started");
    if forwards_for_anyone(&args) {
        tracing::warn!(
            "questions of any client are forwarded: set --client-network to the networks of the cluster, so that others cannot use this server for \
             attacks on third parties"
        );
    }
    let notifier = Notifier::of_environment();
    notifier.say("READY=1");
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = follower.run() => {}
        () = announced.run() => {}
        () = key_follower.run() => {}
        () = writer.run() => {}
        () = changes.run() => {}
        () = reporter.run() => {}
        served = sockets.serve(responder, certificate, stop.clone()) => {
            served.context("cannot start the threads for questions over UDP: raise the limit on threads of the service")?;
        }
        served = status::serve(status_listener, status_routes) => served?,
        served = serve_external_dns(external_dns) => served?,
        () = keep(&args, zones) => {}
        () = watch_loops(forwarder.as_ref()) => {}
        () = feed_watchdog(&notifier) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    notifier.say("STOPPING=1");
    stop.cancel();
    tracing::info!("stopped");
    Ok(())
}

/// Returns true if clients outside of this machine may ask, all of them are clients of the cluster, and their questions are forwarded.
fn forwards_for_anyone(args: &Args) -> bool {
    let mut addresses = args.listen.iter().chain(&args.tls_listen);
    !args.upstream.is_empty()
        && args.client_network.is_empty()
        && addresses.any(|address| !address.ip().is_loopback())
}

/// Binds the socket for ExternalDNS, if zones are given that it may change.
async fn external_dns(
    args: &Args,
    zones: &watch::Receiver<Option<Arc<Zone>>>,
    updates: &UpdateQueue,
) -> anyhow::Result<Option<(ExternalDns, TcpListener)>> {
    if args.external_dns_zone.is_empty() {
        return Ok(None);
    }
    let listener = TcpListener::bind(args.external_dns_listen).await.with_context(|| {
        format!("cannot listen on {}: choose another --external-dns-listen", args.external_dns_listen)
    })?;
    let (zones, updates) = (zones.clone(), updates.clone());
    Ok(Some((ExternalDns { zones, updates, names: args.external_dns_zone.clone() }, listener)))
}

async fn serve_external_dns(provider: Option<(ExternalDns, TcpListener)>) -> std::io::Result<()> {
    match provider {
        Some((provider, listener)) => provider.serve(listener).await,
        None => std::future::pending().await,
    }
}

/// Loads the certificate of DNS over TLS, if there is one.
fn certificate(args: &Args) -> anyhow::Result<Option<Certificate>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert_file, &args.tls_key_file) else { return Ok(None) };
    let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
    Ok(Some(
        Certificate::load(files)
            .context("cannot serve DNS over TLS: correct --tls-cert-file or --tls-key-file")?,
    ))
}

/// Returns the settings of connections to upstream servers over TLS.
fn upstream_tls(args: &Args) -> anyhow::Result<ClientConfig> {
    let trust = match &args.upstream_ca_file {
        Some(file) => Trust::file(file).with_context(|| {
            format!("cannot use --upstream-ca-file {}: correct the file or leave it out", file.display())
        })?,
        None if args.upstream.iter().any(|upstream| matches!(upstream.server, UpstreamServer::Tls(..))) => {
            Trust::system()
        }
        // The certificates of the operating system are not needed.
        None => Trust::authorities([])?,
    };
    let mut config = trust.client()?.with_no_client_auth();
    config.alpn_protocols = vec![TLS_PROTOCOL.to_vec()];
    Ok(config)
}

/// Returns true if an upstream server is this server.
fn is_own(args: &Args, upstream: &UpstreamSetting) -> bool {
    match upstream.server {
        UpstreamServer::Plain(address) => is_served(&args.listen, address),
        UpstreamServer::Tls(address, _) => is_served(&args.tls_listen, address),
    }
}

/// Returns true if this server answers at an address: it is one of `listen`, or a loopback address while the server
/// listens at all addresses.
fn is_served(listen: &[SocketAddr], address: SocketAddr) -> bool {
    listen.iter().any(|own| {
        let is_everywhere = own.ip().is_unspecified() && address.ip().is_loopback();
        own.port() == address.port() && (own.ip() == address.ip() || is_everywhere)
    })
}

/// Sends a message to the service manager's watchdog at its interval, which a blocked runtime would not.
async fn feed_watchdog(notifier: &Notifier) {
    let Some(interval) = notifier.watchdog_interval() else { return std::future::pending().await };
    loop {
        notifier.say("WATCHDOG=1");
        tokio::time::sleep(interval).await;
    }
}

async fn watch_loops(forwarder: Option<&Forwarder>) {
    match forwarder {
        Some(forwarder) => forwarder.watch_loops().await,
        None => std::future::pending().await,
    }
}

async fn keep(args: &Args, zones: watch::Receiver<Option<Arc<Zone>>>) {
    match &args.state_dir {
        Some(directory) => state::journal(directory).keep(zones, state::parts).await,
        None => std::future::pending().await,
    }
}

fn cache_options(args: &Args) -> CacheOptions {
    CacheOptions {
        entries_max: args.cache_entries,
        negative_entries_max: args.cache_negative_entries,
        ttl_limits: TtlLimits { positive: args.cache_ttl, negative: args.cache_ttl_negative },
        stale_max: Duration::from_secs(args.cache_stale.into()),
    }
}

fn zone_settings(args: &Args) -> ZoneSettings {
    let own = || args.listen.iter().map(|address| address.ip()).filter(|address| !address.is_unspecified());
    let servers: Vec<IpAddr> =
        if args.server_address.is_empty() { own().collect() } else { args.server_address.clone() };
    ZoneSettings {
        domain: args.domain.clone(),
        ttl: args.ttl,
        ttl_headless: args.ttl_headless,
        ttl_negative: args.ttl_negative,
        servers,
        reverse: args.reverse.clone(),
    }
}

/// Returns the zone of the last state on disk, if there is one.
fn restored(args: &Args, settings: &ZoneSettings, metrics: &Metrics) -> Option<Arc<Zone>> {
    let directory = args.state_dir.as_ref()?;
    match state::load(directory) {
        Ok(stored) => {
            let StoredState { snapshot, announced, external_serial } = stored?;
            let zone = Zone::new(settings.clone(), snapshot).with_announced(announced);
            let zone = zone.with_external_serial(external_serial);
            tracing::info!(revision = zone.snapshot().revision().0, "answering from the last state on disk");
            metrics.set_ready();
            Some(Arc::new(zone))
        }
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "the state on disk is unusable; waiting for a control server");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_server_that_is_this_server_is_recognized() {
        let is_own =
            |listen: &str, upstream: &str| is_served(&[listen.parse().unwrap()], upstream.parse().unwrap());
        assert!(is_own("127.0.0.1:53", "127.0.0.1:53") && is_own("0.0.0.0:53", "127.0.0.1:53"));
        assert!(!is_own("127.0.0.1:53", "127.0.0.1:5353") && !is_own("0.0.0.0:53", "192.0.2.1:53"));
    }
}
