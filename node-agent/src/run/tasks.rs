//! Tasks that connect the agent loop with the control servers and the service manager (systemd).

use std::{io, sync::Arc};

use ::network::{refusals::RecordRefusals, run::NetworkShown};
use anyhow::Context as _;
use base::service_manager::Notifier;
use futures::{FutureExt as _, future::join_all};
use model::primitives::{name::Name, public_key::PublicKey};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use traces::Telemetry;

use super::network::Network;
use crate::{
    ask::{self, Answerer, Errand},
    control::Control,
    enrol::CertificateHandle,
    feed::{
        self, FeedOptions, HEARTBEAT_INTERVAL, Outlets, ReceivedPart, ReceivedQuery, questions::Listener,
        register,
    },
    report::{self, Ending, Reporter, Sources},
    server::{self, ServedSources},
    service_status::{self, LoopCounter},
    status::Status,
    tally::Tally,
    workload_network,
};

/// Minimum delay before reconnecting to a control server. The maximum is `RECONNECT_CAP`.
const RECONNECT_FLOOR: std::time::Duration = std::time::Duration::from_millis(100);
const RECONNECT_CAP: std::time::Duration = std::time::Duration::from_secs(10);

/// Tasks of a running agent. All of them end after `stop` is canceled.
pub(super) struct Tasks {
    pub(super) service_manager: JoinHandle<()>,
    pub(super) feed: JoinHandle<()>,
    pub(super) listening: JoinHandle<()>,
    pub(super) check: JoinHandle<()>,
    pub(super) answers: JoinHandle<()>,
    pub(super) report: JoinHandle<()>,
    pub(super) server: JoinHandle<io::Result<()>>,
}

impl Tasks {
    /// Waits until all tasks have ended.
    pub(super) async fn join(self) -> anyhow::Result<()> {
        self.service_manager.await?;
        self.feed.await?;
        self.listening.await?;
        self.answers.await?;
        self.report.await?;
        self.check.await?;
        self.server.await?.context("the server failed")
    }
}

/// Parts of a started agent that its [`Tasks`] use.
pub(super) struct RunningAgent {
    pub(super) node: Name,
    pub(super) boot_id: String,
    pub(super) peer_public_key: Option<PublicKey>,
    pub(super) control: Arc<Control>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) tally: Tally,
    pub(super) stop: CancellationToken,
    pub(super) telemetry: Telemetry,
    /// Attachments that the control server does not record.
    pub(super) refusals: watch::Sender<RecordRefusals>,
    /// Reason why the routes or the tunnel of workload networks are not as they should be.
    pub(super) network_failure: watch::Receiver<Option<String>>,
}

impl RunningAgent {
    pub(super) fn notify_service_manager(&self, beats: LoopCounter) -> JoinHandle<()> {
        let notifier = Notifier::of_environment();
        tokio::spawn(service_status::tell(notifier, beats, self.status.clone(), self.stop.clone()))
    }

    /// Starts a task that receives the cluster state from a control server, as soon as the node has the
    /// certificate that the server requires.
    pub(super) fn follow(
        &self,
        certificate: &CertificateHandle,
        registration: &register::Registration,
        held: ReceivedPart,
        outlets: Outlets,
    ) -> JoinHandle<()> {
        let options = FeedOptions {
            node: self.node.clone(),
            registration: registration.clone(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            reconnect_floor: RECONNECT_FLOOR,
            reconnect_cap: RECONNECT_CAP,
        };
        let follow = feed::follow(Arc::clone(&self.control), options, held, outlets, self.stop.clone());
        let settled = self.stop.clone().run_until_cancelled_owned(certificate.settled());
        tokio::spawn(settled.then(|_| follow))
    }

    /// Starts a task that warns of command-line flags whose values differ from the Node object, which takes
    /// precedence.
    pub(super) fn check_flags(
        &self,
        certificate: &CertificateHandle,
        registration: &register::Registration,
    ) -> JoinHandle<()> {
        let control = Arc::clone(&self.control);
        let check = register::warn_of_ignored_flags(control, self.node.clone(), registration.clone());
        let check = certificate.settled().then(|()| check);
        let check = self.stop.clone().run_until_cancelled_owned(check);
        tokio::spawn(check.map(|_stopped| ()))
    }

    /// Starts a task that receives queries from all control servers other than the one that currently sends
    /// the cluster state. With a single server there is no other.
    pub(super) fn hear_questions(&self, questions: &mpsc::Sender<ReceivedQuery>) -> JoinHandle<()> {
        let control = &self.control;
        let listeners = control.servers().filter(|_| control.has_several()).map(|server| Listener {
            control: Arc::clone(control),
            server,
            node: self.node.clone(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            reconnect_floor: RECONNECT_FLOOR,
            reconnect_cap: RECONNECT_CAP,
            questions: questions.clone(),
        });
        let all = join_all(listeners.map(Listener::listen).collect::<Vec<_>>());
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let _stopped = stop.run_until_cancelled(all).await;
        })
    }

    pub(super) fn answer(
        &self,
        allow_fixes: bool,
        asked: mpsc::Receiver<ReceivedQuery>,
        errands: mpsc::Sender<Errand>,
    ) -> JoinHandle<()> {
        let answerer = Answerer {
            control: Arc::clone(&self.control),
            node: self.node.clone(),
            status: self.status.clone(),
            refusals: self.refusals.subscribe(),
            network_failure: self.network_failure.clone(),
            allow_fixes,
        };
        tokio::spawn(ask::run(answerer, asked, errands, self.stop.clone()))
    }

    /// Starts the task that reports to the control servers, and at the end sends a last report as `ending` requires.
    pub(super) fn report(
        &self,
        network: &Network,
        is_known: watch::Receiver<bool>,
        ending: Ending,
    ) -> JoinHandle<()> {
        let reporter = Reporter {
            control: Arc::clone(&self.control),
            node: self.node.clone(),
            boot_id: self.boot_id.clone(),
            peer_public_key: self.peer_public_key,
            tally: self.tally.clone(),
            announcing: network.announcing.clone(),
        };
        let sources = Sources {
            status: self.status.clone(),
            links: network.links.clone(),
            announced: network.announcer.shown.clone(),
            routes: network.routes.clone(),
            checked: network.checked.clone(),
            refusals: self.refusals.subscribe(),
            network_failure: self.network_failure.clone(),
            is_known,
        };
        tokio::spawn(report::run(reporter, sources, self.stop.clone(), ending))
    }

    /// Starts the task that reports the attachments of workloads to a control server.
    pub(super) fn report_attachments(
        &self,
        shown: watch::Receiver<NetworkShown>,
        is_known: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let (control, node) = (Arc::clone(&self.control), self.node.clone());
        let report = workload_network::report::run(control, node, shown, self.refusals.clone(), is_known);
        let report = self.stop.clone().run_until_cancelled_owned(report);
        tokio::spawn(report.map(|_stopped| ()))
    }

    pub(super) fn serve(
        &self,
        network: &Network,
        certificate: &CertificateHandle,
        listener: TcpListener,
    ) -> JoinHandle<io::Result<()>> {
        let sources = ServedSources {
            node: self.node.clone(),
            boot_id: self.boot_id.clone(),
            status: self.status.clone(),
            announced: network.announcer.shown.clone(),
            routes: network.routes.clone(),
            checked: network.checked.clone(),
            tally: self.tally.clone(),
            enrolled: certificate.shown.clone(),
            control: Arc::clone(&self.control),
            telemetry: self.telemetry.clone(),
        };
        tokio::spawn(server::run(listener, sources, self.stop.clone()))
    }
}
