//! Formats session outputs as text for the golden tables of the tests.

use bgp::{
    Message, Notification,
    session::{Event, Output},
};

pub fn line(output: &Output) -> String {
    match output {
        Output::Connect => "connect".to_owned(),
        Output::CancelConnect => "cancel the attempt to connect".to_owned(),
        Output::Send { connection, message } => {
            format!("send {} over {}", message_words(message), connection.0)
        }
        Output::Close { connection } => format!("close {}", connection.0),
        Output::Event(event) => event_words(event),
    }
}

pub fn message_words(message: &Message) -> String {
    match message {
        Message::Open(_) => "OPEN".to_owned(),
        Message::Update(_) => "UPDATE".to_owned(),
        Message::Notification(notification) => notification_words(notification),
        Message::Keepalive => "KEEPALIVE".to_owned(),
        Message::Refresh(_) => "ROUTE-REFRESH".to_owned(),
    }
}

fn notification_words(notification: &Notification) -> String {
    let Notification { code, subcode, data } = notification;
    let data: Vec<_> = data.iter().map(|byte| format!("{byte:02x}")).collect();
    let data = if data.is_empty() { String::new() } else { format!(" [{}]", data.join(" ")) };
    format!("NOTIFICATION {code}/{subcode}{data}")
}

fn event_words(event: &Event) -> String {
    match event {
        Event::State { from, to, why } => format!("{from} → {to}: {why}"),
        Event::Established { connection, negotiated } => format!(
            "established over {}: hold time {} s, keepalive {} s",
            connection.0, negotiated.hold_time, negotiated.keepalive_time
        ),
        Event::Down(down) => {
            let notification = |label: &str, notification: &Option<Notification>| {
                let words = notification.as_ref().map(notification_words);
                words.map(|words| format!("; {label} {words}")).unwrap_or_default()
            };
            let (sent, received) =
                (notification("sent", &down.sent), notification("received", &down.received));
            let routes = if down.peer_keeps_routes { "; routes stay" } else { "" };
            format!("down: {}{sent}{received}{routes}", down.why)
        }
        Event::Update(learned) => format!(
            "learned: {} announced, {} withdrawn, {} foreign, {} faults; has {}",
            learned.announced,
            learned.withdrawn,
            learned.foreign,
            learned.faults.len(),
            learned.prefixes
        ),
        Event::PeerEndOfRib(family) => format!("end of the neighbour's routes of {family}"),
        Event::RefreshRequested(family) => format!("refresh of {family} is wanted"),
        Event::PrefixLimit { count, limit, is_exceeded } => {
            let how = if *is_exceeded { "beyond" } else { "near" };
            format!("{count} prefixes, {how} the limit of {limit}")
        }
    }
}
