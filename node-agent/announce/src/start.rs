//! Creates the components for announcing addresses: sockets, threads, and the tasks that connect them.

use std::{collections::BTreeSet, io, sync::mpsc};

use base::entropy;
use bfd_runner::Bfd;
use kernel::links::Links;
use model::primitives::name::Name;
use tokio::sync::watch;

use super::{
    Announcing, Running,
    adapters::{L2, Peers},
    l2::announcer::{Announcer, Timing},
    l2::machine::REFRESH_INTERVAL,
    neighbours::KernelNeighbours,
    peer_keys::PeerIdentity,
    ping::{Ping, SETTLE_TIME},
    thread::{Message, Parts},
};
use crate::AnnounceConfig;

/// Starts announcing on the interfaces in `links`, in the network namespace of the calling thread. Must be
/// called inside a tokio runtime. Other nodes are monitored by `bfd`, and authenticated by keys that `identity` and
/// their public keys agree on; without `identity`, by the key of all nodes.
///
/// # Errors
/// Returns an I/O error if sockets or threads cannot be created.
pub fn start(
    node: Name,
    identity: Option<PeerIdentity>,
    config: AnnounceConfig,
    bfd: Bfd,
    links: watch::Receiver<Links>,
    announcing: &Announcing,
    messages: mpsc::Receiver<Message>,
) -> io::Result<Running> {
    let timing = Timing { refresh_interval: REFRESH_INTERVAL, random: entropy() };
    let (announcer, conflicts) = Announcer::start(timing)?;
    tokio::spawn(announcer.follow(links.clone()));
    tokio::spawn(tell_carriers(links, announcing.clone()));
    let warned = announcing.clone();
    let ping = Ping::start(SETTLE_TIME, move |warning| warned.tell(Message::Warning(warning)))?;
    let parts = Parts {
        node,
        wire: Box::new(L2::new(announcer, conflicts, ping, announcing.clone())),
        watch: Box::new(Peers::new(bfd, config, identity, announcing.clone())),
        neighbours: Box::new(KernelNeighbours::open()?),
        detection_time: config.detection_time(),
    };
    super::spawn(parts, messages)
}

async fn tell_carriers(mut links: watch::Receiver<Links>, announcing: Announcing) {
    let mut told = None;
    loop {
        let carriers: BTreeSet<String> = {
            let links = links.borrow_and_update();
            links.by_index.values().filter(|link| link.is_up).map(|link| link.name.clone()).collect()
        };
        if told.as_ref() != Some(&carriers) {
            announcing.tell(Message::Carriers(carriers.clone()));
            told = Some(carriers);
        }
        if links.changed().await.is_err() {
            return;
        }
    }
}
