//! Applies events to the session of a neighbor, carries out the resulting actions, and monitors the path by
//! BFD.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Instant,
};

use ::bgp::{
    Message, Refresh, RefreshKind,
    rib::Terms,
    session::{ConnectionId, Event, Input, NegotiatedSession, Output},
};
use base::entropy;
use bfd_runner::{PeerKey, PeerState};
use tracing::warn;

use super::{FORGET_TIME, Neighbour};
use crate::peering::{
    next_hop::{self, NextHops},
    path,
    routes::Relation,
    settings::Settings,
};

impl Neighbour {
    /// Passes an event to the session and carries out the resulting actions. All changes of the session go
    /// through this function.
    pub(super) fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.session.handle(input, Instant::now(), entropy()) {
                inputs.extend(self.carry_out(output));
            }
        }
        self.schedule_forgetting();
    }

    /// Carries out an action that the session requests. Returns the event that follows from the action at
    /// once, such as a failed connection attempt; `None` if there is none.
    fn carry_out(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Connect => return self.dial().err().map(|why| Input::ConnectFailed { why }),
            Output::CancelConnect => self.dialing = None,
            Output::Send { connection, message } => self.send(connection, &message),
            Output::Close { connection } => self.close(connection),
            Output::Event(event) => self.notice(event),
        }
        None
    }

    fn notice(&mut self, event: Event) {
        match event {
            Event::Established { connection, negotiated } => {
                let relation = Relation {
                    local_asn: self.settings.session.local_asn,
                    is_external: negotiated.is_external,
                    role: self.settings.session.role,
                };
                let terms = Terms {
                    families: negotiated.families.clone(),
                    context: self.session.context(connection),
                    enhanced_refresh: negotiated.enhanced_refresh,
                };
                let next_hops = self.next_hops();
                self.routes.begin(terms, relation, next_hops);
                self.begin_reflection(connection, &negotiated);
                self.face.established(&negotiated);
            }
            Event::Down(down) => {
                self.routes.end();
                self.reflection.end(&down);
                self.face.down(&down);
            }
            Event::RefreshRequested(family) => self.routes.refresh(family),
            Event::State { from: _, to, why: _ } => self.face.entered(to),
            Event::Update(learned) => {
                self.reflection.learn(&learned.update);
                self.face.counters.prefixes_received = learned.prefixes.number().into();
            }
            Event::PrefixLimit { count, limit, is_exceeded } => {
                if !is_exceeded {
                    warn!(neighbour = %self.key, %count, limit, "the number of prefixes from a BGP \
                                                                 neighbor approaches its limit");
                }
            }
            Event::PeerEndOfRib(family) => self.reflection.end_of_rib(family),
        }
    }

    fn begin_reflection(&mut self, connection: ConnectionId, negotiated: &NegotiatedSession) {
        let Some(connection) = self.connections.get(&connection) else { return };
        let Settings { session, reflection, .. } = &self.settings;
        self.reflection.begin(*reflection, session, negotiated, connection.remote.ip());
        self.routes.reflect(self.reflection.prefixes());
    }

    /// Requests all routes of the neighbor again (RFC 2918), if the neighbor supports such requests.
    pub(super) fn request_routes(&mut self) {
        let Some((connection, negotiated)) = self.session.established_over().zip(self.session.negotiated())
        else {
            return;
        };
        let families = if negotiated.route_refresh { negotiated.families.clone() } else { BTreeSet::new() };
        for family in families {
            let request = Refresh { family: Some(family), kind: RefreshKind::Request };
            self.send(connection, &Message::Refresh(request));
        }
    }

    pub(super) fn next_hops(&self) -> NextHops {
        let established = self.session.established_over().and_then(|id| self.connections.get(&id));
        let Some((connection, negotiated)) = established.zip(self.session.negotiated()) else {
            return NextHops::new();
        };
        next_hop::next_hops(
            connection.local,
            connection.remote,
            &negotiated.families,
            negotiated.extended_next_hop,
            &self.links.borrow(),
        )
    }

    /// Requests BFD monitoring of the path to the neighbor once both addresses are known.
    pub(super) fn watch(&mut self) {
        let connection = self.connections.values().next_back();
        let ends = connection.map(|connection| (connection.local.ip(), connection.remote.ip()));
        let known = self.watched.as_ref().map(|(key, _)| (key.local, key.peer));
        let named = self.settings.way.source.zip(self.remote().map(|remote| remote.ip()));
        let wanted = ends.or(known).or(named).and_then(|(local, peer)| {
            let is_on_link = next_hop::is_on_link(local, peer, &self.links.borrow());
            Some((PeerKey { local, peer }, self.settings.watch(is_on_link)?))
        });
        if wanted == self.watched {
            return;
        }
        self.unwatch();
        self.watched.clone_from(&wanted);
        self.hub.put(|reports| {
            reports.paths.insert(self.key.clone(), wanted);
        });
    }

    pub(super) fn unwatch(&mut self) {
        (self.path, self.face.bfd) = (None, None);
        if self.watched.take().is_some() {
            self.hub.put(|reports| {
                reports.paths.insert(self.key.clone(), None);
            });
        }
    }

    pub(super) fn follow_path(&mut self, now: PeerState) {
        let has_failed = path::has_failed(self.path.as_ref(), &now);
        self.face.bfd = Some(path::words(&now));
        self.path = Some(now);
        if has_failed {
            self.tell(Input::BfdDown);
        }
    }

    fn schedule_forgetting(&mut self) {
        if self.key.address.is_some() {
            let is_alone = self.connections.is_empty();
            // Routes that are kept during a restart of the neighbor would be removed with it.
            let is_after_restart =
                |at: &Instant| self.reflection.poll_timeout().is_none_or(|until| *at > until);
            let forget_at = self.forget_at.filter(is_after_restart);
            let next = || self.reflection.poll_timeout().unwrap_or_else(Instant::now) + FORGET_TIME;
            self.forget_at = is_alone.then(|| forget_at.unwrap_or_else(next));
        }
    }
}
