//! Golden test: the result of every event of RFC 4271 §8.1 in every state of §8.2.2, as a readable table in
//! `table.txt`. `UPDATE_GOLDEN=1` rewrites the table.

use std::{fmt::Write, fs, path::Path};

use bgp::{
    Family, Message, Refresh, RefreshKind,
    notification::{cease, code},
    session::{Config, Direction, Input, Output, State, Stop},
};

use super::{
    support::{Bench, config, connected, id, malformed, notification, open, passive, received, secs, update},
    words::line,
};

const INTRODUCTION: &str = "\
What a session does, state by state and event by event (RFC 4271 §8.1, §8.2.2). The connection is 1 and was made by us;
the neighbour proposes a hold time of 30 s. Events that no session is ever told: 12 and 20 (delay open is off), 15 (the
driver refuses strangers). Event 14 is 16 or 17 here; 3 and 5–7 are what follows the end of the idle time, 13.
";

/// Name of a state, and the function that brings a session into it.
type Case = (&'static str, fn() -> Bench);
/// Name of an event, and the function that passes its inputs to a session.
type Happening = (&'static str, fn(&mut Bench) -> Vec<Output>);

const STATES: [Case; 8] = [
    ("Idle, stopped", || Bench::new(config())),
    ("Idle, after a protocol error", || {
        let mut bench = Bench::outgoing(config(), open(), State::OpenSent);
        bench.tell(malformed(1, notification(code::OPEN, 4)));
        bench
    }),
    ("Connect", || {
        let mut bench = Bench::new(config());
        bench.tell(Input::Start);
        bench
    }),
    ("Active", || {
        let mut bench = Bench::new(config());
        bench.tell(Input::Start);
        bench.tell(Input::ConnectFailed { why: "connection refused".to_owned() });
        bench
    }),
    ("Active, passive", || {
        let mut bench = Bench::new(passive());
        bench.tell(Input::Start);
        bench
    }),
    ("OpenSent", || Bench::outgoing(config(), open(), State::OpenSent)),
    ("OpenConfirm", || Bench::outgoing(config(), open(), State::OpenConfirm)),
    ("Established", || Bench::outgoing(config(), open(), State::Established)),
];

const EVENTS: [Happening; 31] = [
    ("1 ManualStart", |bench| bench.tell(Input::Start)),
    ("2 ManualStop", |bench| bench.tell(Input::Stop(Stop::Shutdown("works".to_owned())))),
    ("2 ManualStop, for a restart", |bench| bench.tell(Input::Stop(Stop::Silent))),
    ("8 AutomaticStop: BFD finds the path down", |bench| bench.tell(Input::BfdDown)),
    ("8 AutomaticStop: other settings that need a reset", |bench| {
        bench.tell(Input::Configure(Box::new(Config { hold_time: 180, ..bench.session.config().clone() })))
    }),
    ("9 ConnectRetryTimer_Expires, 13 IdleHoldTimer_Expires: 5 s pass", |bench| bench.pass(secs(5))),
    ("10 HoldTimer_Expires: 240 s pass in OpenSent, 30 s in others", |bench| {
        let time = if bench.state() == State::OpenSent { 240 } else { 30 };
        bench.pass(secs(time))
    }),
    ("11 KeepaliveTimer_Expires: 10 s pass", |bench| bench.pass(secs(10))),
    ("SendHoldTimer_Expires (RFC 9687): no byte is taken for 480 s", |bench| {
        bench.tell(Input::SendStalled { connection: id(1) });
        if bench.contract.open.is_empty() {
            return Vec::new();
        }
        let keepalives =
            |output: &Output| !matches!(output, Output::Send { message: Message::Keepalive, .. });
        bench.keep_up(1, secs(480)).into_iter().filter(keepalives).collect()
    }),
    ("16 Tcp_CR_Acked: we have connected (2)", |bench| bench.tell(connected(2, Direction::Outgoing))),
    ("17 TcpConnectionConfirmed: the neighbour has (2)", |bench| {
        bench.tell(connected(2, Direction::Incoming))
    }),
    ("18 TcpConnectionFails: our attempt", |bench| {
        bench.tell(Input::ConnectFailed { why: "no route to host".to_owned() })
    }),
    ("18 TcpConnectionFails: the connection", |bench| {
        bench.tell(Input::Closed { connection: id(1), why: "closed by the neighbour".to_owned() })
    }),
    ("19 BGPOpen", |bench| bench.tell(received(1, Message::Open(open())))),
    ("19 BGPOpen, another AS than expected", |bench| {
        bench.tell(received(1, Message::Open(bgp::Open { asn: 65_009, ..open() })))
    }),
    ("21 BGPHeaderErr", |bench| bench.tell(malformed(1, notification(code::HEADER, 2)))),
    ("22 BGPOpenMsgErr", |bench| bench.tell(malformed(1, notification(code::OPEN, 4)))),
    ("22 BGPOpenMsgErr, version", |bench| bench.tell(malformed(1, notification(code::OPEN, 1)))),
    ("17 and 19: OPEN over a connection of the neighbour (2)", |bench| {
        let mut outputs = bench.tell(connected(2, Direction::Incoming));
        outputs.extend(bench.tell(received(2, Message::Open(open()))));
        outputs
    }),
    ("23 OpenCollisionDump: the same, and the neighbour's router ID is lower", |bench| {
        let mut outputs = bench.tell(connected(2, Direction::Incoming));
        let open = bgp::Open { router_id: [9, 0, 0, 1].into(), ..open() };
        outputs.extend(bench.tell(received(2, Message::Open(open))));
        outputs
    }),
    ("24 NotifMsgVerErr", |bench| {
        bench.tell(received(1, Message::Notification(notification(code::OPEN, 1))))
    }),
    ("25 NotifMsg, Cease", |bench| {
        bench.tell(received(1, Message::Notification(notification(code::CEASE, cease::SHUTDOWN))))
    }),
    ("25 NotifMsg, Cease for too many prefixes", |bench| {
        bench.tell(received(1, Message::Notification(notification(code::CEASE, cease::MAX_PREFIXES))))
    }),
    ("25 NotifMsg, an error of ours", |bench| {
        bench.tell(received(1, Message::Notification(notification(code::UPDATE, 1))))
    }),
    ("26 KeepAliveMsg", |bench| bench.tell(received(1, Message::Keepalive))),
    ("27 UpdateMsg", |bench| bench.tell(received(1, update(&["192.0.2.0/24"], &[])))),
    ("28 UpdateMsgErr", |bench| bench.tell(malformed(1, notification(code::UPDATE, 1)))),
    ("ROUTE-REFRESH (RFC 2918)", |bench| bench.tell(received(1, refresh(RefreshKind::Request)))),
    ("ROUTE-REFRESH of an unknown kind (RFC 7313)", |bench| {
        bench.tell(received(1, refresh(RefreshKind::Unknown(9))))
    }),
    ("ROUTE-REFRESH that is malformed (RFC 7313)", |bench| {
        bench.tell(malformed(1, notification(code::REFRESH, 1)))
    }),
    ("settings that take effect in place", |bench| {
        let config = Config { keepalive_time: Some(2), max_prefixes: 7, ..bench.session.config().clone() };
        bench.tell(Input::Configure(Box::new(config)))
    }),
];

const fn refresh(kind: RefreshKind) -> Message {
    Message::Refresh(Refresh { family: Some(Family::Ipv6Unicast), kind })
}

fn due_words(bench: &Bench) -> String {
    bench.due_in().map_or("nothing due".to_owned(), |time| format!("next due in {:.2} s", time.as_secs_f64()))
}

#[test]
fn every_state_answers_every_event_as_the_table_says() {
    let mut table = INTRODUCTION.to_owned();
    for (state, prepare) in STATES {
        write!(table, "\n══ {state} ══ ({})\n", prepare().session.reason()).unwrap();
        let mut without_effect = Vec::new();
        for (event, happens) in EVENTS {
            let (before, mut bench) = (prepare(), prepare());
            let outputs = happens(&mut bench);
            // Each bench has its own start of time.
            if outputs.is_empty() && due_words(&bench) == due_words(&before) {
                without_effect.push(event);
                continue;
            }
            writeln!(table, "{event}").unwrap();
            for output in &outputs {
                writeln!(table, "    {}", line(output)).unwrap();
            }
            writeln!(table, "    = {}; {}", bench.state(), due_words(&bench)).unwrap();
        }
        writeln!(table, "Without effect:").unwrap();
        for event in without_effect {
            writeln!(table, "    {event}").unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/session_table.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &table).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    for (number, (is, should)) in table.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, should, "line {} of table.txt", number + 1);
    }
    assert!(table == golden, "run UPDATE_GOLDEN=1 cargo test -p bgp --test it session::");
}
