//! Parts of the agent that use the network, other than the proxy rules: announcements by ARP and NDP, BGP,
//! and health checks.

use std::sync::Arc;

use announce::{self, AnnounceConfig, Announcing, ownership::io_traits::OnExit, peer_keys::PeerIdentity};
use anyhow::Context as _;
use bfd_runner::Bfd;
use health::CheckedEndpoints;
use kernel::links::{Links, follow::Follower};
use model::primitives::name::Name;
use speaker::{
    peering::{Leave, Speaker},
    routing::{Routing, show, speaker::Speakers},
};
use tokio::{
    sync::watch,
    task::{JoinError, spawn_blocking},
};

use crate::{agent::Agent, tally::Tally};

/// Announcers, BGP and health checks of the agent, which apply the state that the agent receives.
pub(super) struct Network {
    pub(super) links: watch::Receiver<Links>,
    pub(super) announcing: Announcing,
    pub(super) announcer: announce::Running,
    speaker: Arc<Speaker>,
    pub(super) routes: show::View,
    pub(super) checked: watch::Receiver<CheckedEndpoints>,
}

impl Network {
    /// Starts the announcements, BGP and health checks, and attaches them to `agent`. Must be called inside a
    /// tokio runtime, before the agent first updates the kernel. `identity` authenticates BFD with single nodes.
    pub(super) fn start(
        agent: &mut Agent,
        node: &Name,
        identity: Option<PeerIdentity>,
        config: AnnounceConfig,
        tally: &Tally,
    ) -> anyhow::Result<Self> {
        let (announcing, messages) = announce::channel();
        let (follower, links) = Follower::open().context("the interfaces of the machine cannot be listed")?;
        // Ends when the last receiver of interface updates is dropped.
        let _follower = tokio::spawn(follower.run());
        let bfd = Bfd::start().context("BFD cannot be started")?;
        let speaker =
            Arc::new(Speaker::start(node, bfd.share(), links.clone()).context("BGP cannot be started")?);
        let announcer =
            announce::start::start(node.clone(), identity, config, bfd, links.clone(), &announcing, messages)
                .context("addresses cannot be announced")?;
        agent.announce_by(announcing.clone());
        let routing = Routing::new(Box::new(Speakers::new(Arc::clone(&speaker))));
        let routes = show::start(routing.decided(), speaker.shown());
        agent.route_by(routing);
        let checks =
            health::start(node.clone(), tally.health.clone()).context("endpoints cannot be checked")?;
        agent.check_by(checks.checking);
        Ok(Self { links, announcing, announcer, speaker, routes, checked: checks.shown })
    }

    /// Stops BGP and the announcements. `on_exit` selects if sessions are closed and addresses withdrawn, or
    /// if routers and other nodes wait for the agent's return. Called after the agent loop has ended, so that
    /// no one else uses the BGP speaker.
    pub(super) async fn stop(self, on_exit: OnExit, node: &Name) -> Result<(), JoinError> {
        let how = match on_exit {
            OnExit::Keep => Leave::Restart,
            OnExit::Handover => Leave::Shutdown(format!("the agent of node {node} is stopped")),
        };
        if let Some(speaker) = Arc::into_inner(self.speaker) {
            speaker.leave(how).await;
        }
        spawn_blocking(move || {
            self.announcing.leave(on_exit);
            // The panic message was already printed by the thread.
            let _ended = self.announcer.thread.join();
        })
        .await
    }
}
