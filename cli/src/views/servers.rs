//! Lines of `status` about the control servers, one for each. Used if several are configured.

use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
    },
    views::typed::{decode, documents::ClusterStatus, word},
};

/// Control server with its status response, or the reason why it sent none.
pub struct Server {
    /// URL of the server: scheme, host and port.
    pub url: String,
    /// Status response of the server, or the text of the error that prevented one.
    pub answer: Result<Value, String>,
}

/// Renders one line per server.
#[must_use]
pub fn lines(servers: &[Server], style: Style) -> String {
    let width = servers.iter().map(|server| server.url.chars().count()).max().unwrap_or_default();
    let lines = servers.iter().enumerate().map(|(index, Server { url, answer })| {
        let title = if index == 0 { "Servers" } else { "" };
        let what = match answer {
            Ok(status) => of_status(status),
            Err(cause) => style.paint(Tone::Bad, &clean(cause)),
        };
        format!("{title:<10} {:<width$}  {what}\n", clean(url))
    });
    lines.collect()
}

fn of_status(status: &Value) -> String {
    let ClusterStatus { position, replica, .. } = decode(status).unwrap_or_default();
    let mut parts = vec![format!("at {}", word(&position))];
    let name = clean(&replica.name);
    parts.extend((!name.is_empty()).then(|| format!("replica {name}")));
    parts.extend(replica.is_leader.then(|| "leads".to_owned()));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_server_has_a_line_with_its_position_name_and_whether_it_leads() {
        let answer = json!({"position": "7-9", "replica": {"name": "a", "isLeader": true}});
        let servers = [
            Server { url: "http://one:1".to_owned(), answer: Ok(answer) },
            Server { url: "http://three:3".to_owned(), answer: Ok(json!({"position": "7-8"})) },
            Server { url: "http://two:2".to_owned(), answer: Err("refused\u{1b}".to_owned()) },
        ];
        let said = lines(&servers, Style { color: false });
        let expected =
            "Servers    http://one:1    at 7-9, replica a, leads\n           http://three:3  at 7-8\n";
        assert!(said.starts_with(expected) && said.ends_with('\n') && !said.contains('\u{1b}'), "{said}");
        assert!(said.contains("http://two:2    refused"), "{said}");
    }
}
