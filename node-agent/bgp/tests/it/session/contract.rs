//! Guarantees of the session to its driver (the code that owns the sockets), checked at every step of every
//! test.

use std::collections::BTreeSet;

use bgp::{
    Message,
    session::{ConnectionId, Direction, Event, Input, Output, Session, State},
};

/// Checker of the guarantees of a session to its driver (the code that owns the sockets). The checker
/// receives all inputs and outputs of the session.
#[derive(Debug, Clone)]
pub struct Contract {
    /// Connections that the driver (the code that owns the sockets) considers open.
    pub open: BTreeSet<ConnectionId>,
    /// Connections on which a NOTIFICATION was sent.
    ended: BTreeSet<ConnectionId>,
    /// True while a connection attempt is pending.
    pub is_dialling: bool,
    established: Option<ConnectionId>,
    state: State,
}

impl Contract {
    pub const fn new() -> Self {
        Self {
            open: BTreeSet::new(),
            ended: BTreeSet::new(),
            is_dialling: false,
            established: None,
            state: State::Idle,
        }
    }

    /// Records an input passed to the session.
    pub fn told(&mut self, input: &Input) {
        match input {
            Input::Connected { connection, direction } => {
                self.open.insert(*connection);
                self.is_dialling &= *direction == Direction::Incoming;
            }
            Input::ConnectFailed { .. } => self.is_dialling = false,
            Input::Closed { connection, .. } => {
                self.open.remove(connection);
            }
            Input::Start
            | Input::Stop(_)
            | Input::Timeout
            | Input::Received { .. }
            | Input::SendStalled { .. }
            | Input::SendMoved { .. }
            | Input::BfdDown
            | Input::Configure(_) => {}
        }
    }

    /// Checks the outputs of the session against the guarantees.
    pub fn answered(&mut self, outputs: &[Output], session: &Session) {
        for (at, output) in outputs.iter().enumerate() {
            match output {
                Output::Connect => {
                    assert!(!std::mem::replace(&mut self.is_dialling, true), "one attempt at a time")
                }
                Output::CancelConnect => {
                    assert!(std::mem::replace(&mut self.is_dialling, false), "nothing to cancel")
                }
                Output::Send { connection, message } => self.sends(*connection, message),
                Output::Close { connection } => {
                    assert!(self.open.remove(connection), "{connection:?} is not open")
                }
                Output::Event(event) => self.tells(event, at + 1 == outputs.len()),
            }
        }
        self.stands(session);
    }

    fn sends(&mut self, connection: ConnectionId, message: &Message) {
        assert!(self.open.contains(&connection), "{connection:?} is not open");
        assert!(!self.ended.contains(&connection), "nothing follows a NOTIFICATION");
        match message {
            Message::Notification(_) => assert!(self.ended.insert(connection)),
            Message::Open(_) | Message::Keepalive => {}
            Message::Update(_) | Message::Refresh(_) => panic!("not the session's to send: {message:?}"),
        }
    }

    fn tells(&mut self, event: &Event, is_last: bool) {
        match event {
            Event::State { from, to, why } => {
                assert!(is_last && from != to && !why.is_empty(), "{event:?}");
                assert_eq!(std::mem::replace(&mut self.state, *to), *from);
            }
            Event::Established { connection, .. } => {
                assert!(self.open.contains(connection));
                assert_eq!(self.established.replace(*connection), None);
            }
            Event::Down(down) => {
                assert!(self.established.take().is_some() && !down.why.is_empty());
                assert!(down.sent.is_none() || down.received.is_none(), "{down:?}");
            }
            Event::Update(_)
            | Event::PeerEndOfRib(_)
            | Event::RefreshRequested(_)
            | Event::PrefixLimit { .. } => assert!(self.established.is_some(), "{event:?}"),
        }
    }

    fn stands(&self, session: &Session) {
        assert_eq!(session.state(), self.state);
        assert_eq!(session.established_over(), self.established);
        assert_eq!(session.state() == State::Established, self.established.is_some());
        assert_eq!(session.negotiated().is_some(), self.established.is_some());
        assert!(!session.reason().is_empty());
        assert!(self.open.len() <= 3, "{:?}", self.open);
        match session.state() {
            State::Idle => assert!(self.open.is_empty() && !self.is_dialling),
            State::Connect => assert!(self.open.is_empty() && self.is_dialling),
            State::Active => assert!(self.open.is_empty() && !self.is_dialling),
            State::OpenSent => assert!(!self.open.is_empty()),
            State::OpenConfirm | State::Established => assert!(!self.open.is_empty() && !self.is_dialling),
        }
        if session.poll_timeout().is_none() {
            let is_final = match session.state() {
                State::Idle => true,
                State::Active => session.config().passive,
                State::Established => session.negotiated().unwrap().hold_time == 0 && self.open.len() == 1,
                State::Connect | State::OpenSent | State::OpenConfirm => false,
            };
            assert!(is_final, "{session:?} waits for nothing");
        }
    }
}
