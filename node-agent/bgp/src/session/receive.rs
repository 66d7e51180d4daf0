//! Handles received messages (RFC 4271 §8.2.2, events 19 to 28) and connection collisions (§6.8).

use std::time::Instant;

use crate::{
    family::Family,
    message::{Message, Open, Refresh, RefreshKind, Update},
    notification::{Notification, cease, code, fsm},
    session::{
        ConnectionId, Direction, Event, NegotiatedSession, ReceivedUpdate, Session, State,
        check::check,
        connection::{Connection, Exchange, Stage},
        ending::{After, Ending, plain},
        machine::{Step, speak},
        prefixes::Prefixes,
        timing::PREFIX_LIMIT_HOLD,
    },
    wire,
};

impl Session {
    pub(super) fn receive(
        &mut self,
        id: ConnectionId,
        result: Result<wire::DecodedMessage, Notification>,
        step: &mut Step,
    ) {
        let Some(connection) = self.connections.iter().find(|connection| connection.id == id) else { return };
        let state = connection.state();
        match result {
            // Events 21, 22 and 28.
            Err(notification) => self.refuse(id, notification, step),
            Ok(wire::DecodedMessage { message, faults }) => match (state, message) {
                // Events 24 and 25.
                (_, Message::Notification(notification)) => {
                    let after = After::received(&notification);
                    self.fall(id, Ending::by_neighbour(notification), after, step);
                }
                (State::OpenSent, Message::Open(open)) => self.opened(id, open, step),
                (State::OpenConfirm, Message::Keepalive) => self.establish(id, step),
                (State::Established, Message::Keepalive) => self.heard(id, step.now),
                (State::Established, Message::Update(update)) => {
                    self.heard(id, step.now);
                    self.learn(id, update, faults, step);
                }
                (State::Established, Message::Refresh(refresh)) => self.refresh(id, refresh, step),
                (state, message) => self.refuse(id, unexpected(state, &message), step),
            },
        }
    }

    fn refuse(&mut self, id: ConnectionId, notification: Notification, step: &mut Step) {
        self.fall(id, Ending::by_us(notification), After::Hold, step);
    }

    /// Restarts the Hold Timer. Only KEEPALIVE and UPDATE do so (RFC 4271 §6.5).
    fn heard(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.connection(id) {
            connection.heard = now;
        }
    }

    /// Handles the OPEN of the neighbor (RFC 4271 event 19): validates it, detects collisions, and responds
    /// with KEEPALIVE.
    fn opened(&mut self, id: ConnectionId, open: Open, step: &mut Step) {
        let verdict = check(&self.config, &open);
        let stays = verdict.is_ok() && self.wins_collision(id, &open, step);
        let negotiated = NegotiatedSession::new(&self.config, &open);
        self.peer_open = Some(open);
        if let Err(refusal) = verdict {
            self.fall(id, Ending::told(refusal.notification, refusal.why), After::Hold, step);
            return;
        }
        if !stays {
            return;
        }
        // The neighbor has not received our OPEN on the pending attempt, so it can be cancelled safely.
        self.hang_up(step);
        self.reason = "OPEN accepted; waiting for KEEPALIVE".to_owned();
        let Some(connection) = self.connection(id) else { return };
        connection.stage = Stage::OpenConfirm(Box::new(negotiated));
        connection.heard = step.now;
        speak(connection, step);
    }

    /// Resolves a connection collision (RFC 4271 §6.8) after an OPEN, if another connection is in OpenConfirm
    /// or Established. Ends the losing connection. Returns true if the connection of the OPEN is kept.
    ///
    /// If one side has already established the losing connection and the other side has not, each side ends
    /// the connection that the other keeps; §6.8 does not cover this case. Both sides then retry after
    /// different delays.
    fn wins_collision(&mut self, id: ConnectionId, open: &Open, step: &mut Step) -> bool {
        let rival = self.connections.iter().find(|each| each.id != id && each.state() >= State::OpenConfirm);
        let Some(rival) = rival else { return true };
        let rival_id = rival.id;
        if rival.is_established() {
            // A restarted neighbor with Graceful Restart may connect before the loss of the old connection is
            // detected: the old one ends without NOTIFICATION (RFC 4724 §4.2 and §5). For other neighbors the
            // established connection is kept.
            let replaces = rival.negotiated().is_some_and(has_restarted);
            if replaces {
                let why = "the neighbour has connected again (graceful restart)".to_owned();
                self.drop_connection(rival_id, Ending::silent(why), step);
            } else {
                self.give_way(id, step);
                self.probe(rival_id, step);
            }
            return replaces;
        }
        let (ours, theirs) = (self.config.router_id.to_bits(), open.router_id.to_bits());
        // Equal BGP Identifiers occur only between different ASes; the AS numbers then decide (RFC 6286
        // §2.3).
        let is_ours_higher = (ours, self.config.local_asn) > (theirs, open.asn);
        let winner = if is_ours_higher { Direction::Outgoing } else { Direction::Incoming };
        let wins = self.connection(id).is_some_and(|connection| connection.direction == winner);
        self.give_way(if wins { rival_id } else { id }, step);
        wins
    }

    /// Ends a connection that lost the collision resolution (RFC 4271 event 23) with Cease/Connection
    /// Collision Resolution.
    fn give_way(&mut self, id: ConnectionId, step: &mut Step) {
        let why = "two connections at a time: the other one stays".to_owned();
        self.drop_connection(id, Ending::told(plain(cease::COLLISION), why), step);
    }

    /// Sends a KEEPALIVE outside of the schedule, so that a restarted neighbor responds with a TCP reset.
    fn probe(&mut self, id: ConnectionId, step: &mut Step) {
        if let Some(connection) = self.connection(id) {
            speak(connection, step);
        }
    }

    /// Establishes the session after a KEEPALIVE in OpenConfirm (RFC 4271 event 26).
    fn establish(&mut self, id: ConnectionId, step: &mut Step) {
        for other in self.find(|connection| connection.id != id) {
            self.give_way(other, step);
        }
        let now = step.now;
        let Some(connection) = self.connection(id) else { return };
        let Some(negotiated) = connection.negotiated().cloned() else { return };
        let event = Event::Established { connection: id, negotiated: Box::new(negotiated.clone()) };
        let prefixes = Prefixes::default();
        connection.stage = Stage::Established(Box::new(Exchange { negotiated, since: now, prefixes }));
        connection.heard = now;
        self.was_established = true;
        self.failure = None;
        self.reason = "established".to_owned();
        step.tell(event);
    }

    /// Counts the routes of an UPDATE (RFC 4271 event 27) and reports them with their numbers.
    fn learn(
        &mut self,
        id: ConnectionId,
        mut update: Box<Update>,
        faults: Vec<wire::AttributeFault>,
        step: &mut Step,
    ) {
        let Some(exchange) = self.connection(id).and_then(Connection::exchange_mut) else { return };
        let families = &exchange.negotiated.families;
        let is_wanted = |prefix: &ipnet::IpNet| families.contains(&Family::of(prefix));
        let all = update.announced.len() + update.withdrawn.len();
        update.withdrawn.retain(is_wanted);
        update.announced.retain(is_wanted);
        for prefix in &update.withdrawn {
            exchange.prefixes.withdraw(prefix);
        }
        for prefix in &update.announced {
            exchange.prefixes.announce(*prefix);
        }
        let (announced, withdrawn) = (update.announced.len(), update.withdrawn.len());
        let foreign = update.foreign.values().sum::<usize>() + all - announced - withdrawn;
        let prefixes = exchange.prefixes.count();
        let end_of_rib = update.end_of_rib.filter(|family| families.contains(family));
        step.tell(Event::Update(ReceivedUpdate { announced, withdrawn, foreign, faults, prefixes, update }));
        if let Some(family) = end_of_rib {
            step.tell(Event::PeerEndOfRib(family));
        }
        self.hold_to_limit(id, step);
    }

    /// Warns when the number of prefixes reaches three quarters of the limit, and ends the session with
    /// Cease/Maximum Number of Prefixes Reached when the number exceeds the limit.
    pub(super) fn hold_to_limit(&mut self, id: ConnectionId, step: &mut Step) {
        let limit = self.config.max_prefixes;
        let Some(exchange) = self.connection(id).and_then(Connection::exchange_mut) else { return };
        let is_exceeded = exchange.prefixes.exceeds(limit);
        if !is_exceeded && !exchange.prefixes.comes_near(limit) {
            return;
        }
        let count = exchange.prefixes.count();
        step.tell(Event::PrefixLimit { count, limit, is_exceeded });
        if is_exceeded {
            let why = format!("the neighbour announces more than {limit} prefixes");
            let ending = Ending::told(plain(cease::MAX_PREFIXES), why);
            self.fall(id, ending, After::HoldFor(PREFIX_LIMIT_HOLD), step);
        }
    }

    /// Reports a refresh request of the neighbor. Markers of a refresh (RFC 7313) are ignored because no
    /// received routes are stored. Unknown subtypes and families are ignored as well (RFC 2918 §4, RFC 7313
    /// §4).
    fn refresh(&mut self, id: ConnectionId, refresh: Refresh, step: &mut Step) {
        let negotiated = self.connection(id).and_then(|connection| connection.negotiated());
        let family = refresh.family.filter(|family| negotiated.is_some_and(|n| n.families.contains(family)));
        if let (RefreshKind::Request, Some(family)) = (refresh.kind, family) {
            step.tell(Event::RefreshRequested(family));
        }
    }
}

/// Returns true if the neighbor supports Graceful Restart for some family, so that a second connection
/// indicates its restart.
fn has_restarted(negotiated: &NegotiatedSession) -> bool {
    negotiated.graceful_restart.as_ref().is_some_and(|restart| !restart.families.is_empty())
}

/// Returns the NOTIFICATION for a message that is not expected in this state: a Finite State Machine Error
/// with the message type (RFC 6608 §3).
fn unexpected(state: State, message: &Message) -> Notification {
    let subcode = match state {
        State::OpenSent => fsm::OPEN_SENT,
        State::OpenConfirm => fsm::OPEN_CONFIRM,
        State::Established => fsm::ESTABLISHED,
        // States without connections.
        State::Idle | State::Connect | State::Active => fsm::UNSPECIFIED,
    };
    let kind = match message {
        Message::Open(_) => 1,
        Message::Update(_) => 2,
        Message::Notification(_) => 3,
        Message::Keepalive => 4,
        Message::Refresh(_) => 5,
    };
    Notification { code: code::FSM, subcode, data: vec![kind] }
}
