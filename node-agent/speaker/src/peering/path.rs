//! State of the path to a neighbor according to BFD, and its effect on the session (RFC 5882).

use ::bfd::State;
use bfd_runner::PeerState;

/// Returns true if BFD reports the failure of a path that was up at the last observation. A BFD session that
/// was never up or is in AdminDown does not indicate a failure (RFC 5882 §3.2).
pub(super) fn has_failed(before: Option<&PeerState>, now: &PeerState) -> bool {
    let was_up = before.filter(|before| before.state == State::Up);
    let is_another = was_up.is_some_and(|before| before.since != now.since);
    is_another && now.state != State::AdminDown && !is_held_by_peer(now)
}

/// Describes the BFD state of a path as text for the status.
pub(super) fn words(state: &PeerState) -> String {
    match (state.fault, state.state) {
        (Some(fault), _) => fault.to_string(),
        (None, State::Up) => "up".to_owned(),
        (None, State::AdminDown) => "held down by us".to_owned(),
        (None, State::Down | State::Init) if is_held_by_peer(state) => {
            "held down by the neighbour".to_owned()
        }
        (None, State::Down | State::Init) => match state.remote {
            None => "down: the neighbour was never heard".to_owned(),
            Some(_) => format!("down: {}", state.diagnostic),
        },
    }
}

fn is_held_by_peer(state: &PeerState) -> bool {
    state.remote.is_some_and(|remote| remote.state == State::AdminDown)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ::bfd::Diagnostic;

    use super::*;
    use bfd_runner::RemoteState;

    fn at(state: State, since: Instant, remote: Option<State>) -> PeerState {
        PeerState {
            state,
            since,
            diagnostic: Diagnostic::ControlDetectionTimeExpired,
            remote: remote.map(|state| RemoteState { heard: true, state, diagnostic: Diagnostic::None }),
            transmit_interval: Duration::from_secs(1),
            detection_time: None,
            fault: None,
            counters: bfd_runner::Counters::default(),
        }
    }

    #[test]
    fn only_a_path_that_worked_fails_and_nobody_fails_on_purpose() {
        let first = Instant::now();
        let later = first + Duration::from_secs(1);
        let up = at(State::Up, first, Some(State::Up));
        let down = at(State::Down, later, Some(State::Up));
        assert!(has_failed(Some(&up), &down));
        assert!(!has_failed(Some(&up), &up));
        assert!(!has_failed(None, &down));
        assert!(!has_failed(Some(&at(State::Init, first, None)), &down));
        assert!(!has_failed(Some(&up), &at(State::Down, later, Some(State::AdminDown))));
        assert!(!has_failed(Some(&up), &at(State::AdminDown, later, Some(State::Up))));
        // Down and up again between two observations.
        assert!(has_failed(Some(&up), &at(State::Up, later, Some(State::Up))));
        assert_eq!(words(&down), "down: control detection time expired");
    }
}
