//! Configurations of HAProxy and nginx for tables of rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::SocketAddr,
    path::Path,
};

use super::{
    TableSockets,
    table::{RouteTable, TableAction, TableRule},
};

/// Address of a redirection, without the path.
const MOVED: &str = "https://moved.example.org";

/// Returns the pattern and the replacement of a regular expression that replaces the prefix of a path.
fn prefix_expression(path: &str, to: &str, reference: char) -> (String, String) {
    let path = path.trim_end_matches('/');
    match to {
        "/" => (format!("^{path}/?(.*)$"), format!("/{reference}1")),
        to => (format!("^{path}(/.*)?$"), format!("{to}{reference}1")),
    }
}

/// Returns a configuration in which the first rule whose conditions are met sets a variable.
pub(super) fn haproxy(tables: &[RouteTable], sockets: &[TableSockets], backends: &[u16]) -> String {
    let mut text = String::from(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n",
    );
    for (number, (table, sockets)) in tables.iter().zip(sockets).enumerate() {
        writeln!(text, "frontend table-{number}\n  bind {}", sockets.haproxy).unwrap();
        for (index, rule) in table.sorted() {
            let conditions = haproxy_conditions(rule);
            writeln!(
                text,
                "  http-request set-var(txn.rule) int({index}) if !{{ var(txn.rule) -m found }} {conditions}"
            )
            .unwrap();
        }
        text += "  http-request return status 404 if !{ var(txn.rule) -m found }\n";
        for (index, rule) in table.rules.iter().enumerate() {
            let is_chosen = format!("{{ var(txn.rule) -m int {index} }}");
            match &rule.action {
                TableAction::Forward(backend) => {
                    writeln!(text, "  use_backend backend-{backend} if {is_chosen}").unwrap();
                }
                TableAction::Rewrite(backend, to) => {
                    let (expression, replacement) = prefix_expression(&rule.path, to, '\\');
                    // A rule of the frontend would come after `use_backend`.
                    writeln!(text, "  http-request replace-path {expression} {replacement} if {is_chosen}")
                        .unwrap();
                    writeln!(text, "  use_backend backend-{backend} if {is_chosen}").unwrap();
                }
                TableAction::Redirect(code) => {
                    writeln!(text, "  http-request redirect prefix {MOVED} code {code} if {is_chosen}")
                        .unwrap();
                }
            }
        }
    }
    for (number, port) in backends.iter().enumerate() {
        writeln!(text, "backend backend-{number}\n  server one 127.0.0.1:{port}").unwrap();
    }
    text
}

fn haproxy_conditions(rule: &TableRule) -> String {
    let mut text = String::new();
    match rule.host.map(|host| (host, host.strip_prefix('*'))) {
        None => {}
        Some((_, Some(base))) => write!(text, " {{ req.hdr(host),lower -m end {base} }}").unwrap(),
        Some((host, None)) => write!(text, " {{ req.hdr(host),lower -m str {host} }}").unwrap(),
    }
    let path = rule.path.trim_end_matches('/');
    match rule.is_exact {
        true => write!(text, " {{ path -m str {} }}", rule.path).unwrap(),
        false if path.is_empty() => {}
        false => write!(text, " {{ path -m reg ^{path}(/|$) }}").unwrap(),
    }
    for (sample, value) in
        [("method", rule.method), ("req.fhdr(x-a)", rule.header), ("url_param(q)", rule.query)]
    {
        if let Some(value) = value {
            write!(text, " {{ {sample} -m str {value} }}").unwrap();
        }
    }
    text
}

/// Returns a configuration with a server block for each host name of plain tables, and a `map` for each other table.
pub(super) fn nginx(
    tables: &[RouteTable],
    sockets: &[TableSockets],
    backends: &[u16],
    directory: &Path,
) -> String {
    let directory = directory.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = kinds.map(|kind| format!("{kind}_temp_path {directory}/{kind};\n")).concat();
    let mut text = format!(
        "daemon off;\nmaster_process off;\npid {directory}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}\
         server_names_hash_bucket_size 128;\nmap_hash_bucket_size 128;\nmerge_slashes off;\n"
    );
    for (number, (table, sockets)) in tables.iter().zip(sockets).enumerate() {
        text += &match table.is_plain {
            true => plain_servers(table, sockets.nginx, backends),
            false => mapped_server(number, table, sockets.nginx, backends),
        };
    }
    text + "}\n"
}

/// Returns the directives that treat a request as the rule does.
fn directives(rule: &TableRule, backends: &[u16]) -> String {
    let pass = |backend: &usize| format!("proxy_pass http://127.0.0.1:{};", backends[*backend]);
    match &rule.action {
        TableAction::Forward(backend) => pass(backend),
        TableAction::Rewrite(backend, to) => {
            let (expression, replacement) = prefix_expression(&rule.path, to, '$');
            format!("rewrite {expression} {replacement} break; {}", pass(backend))
        }
        TableAction::Redirect(code) => format!("return {code} {MOVED}$request_uri;"),
    }
}

fn plain_servers(table: &RouteTable, address: SocketAddr, backends: &[u16]) -> String {
    let sorted = table.sorted();
    let hosts: BTreeSet<_> = table.rules.iter().map(|rule| rule.host).chain([None]).collect();
    let mut text = String::new();
    for host in hosts {
        // nginx has no locations of less specific names, so that they are repeated, unless a prefix of a more specific name has
        // all of their requests.
        let mut locations: BTreeMap<String, String> = BTreeMap::new();
        let own: Vec<_> = sorted.iter().map(|(_, rule)| *rule).filter(|rule| rule.covers(host)).collect();
        let is_first = |rule: &&&TableRule| {
            let mut before = own.iter().take_while(|other| other.host != rule.host);
            !before.any(|other| other.has_prefix_of(&rule.path))
        };
        for rule in own.iter().filter(is_first) {
            let path = rule.path.trim_end_matches('/');
            let mut add = |location: String| {
                locations.entry(location).or_insert_with(|| directives(rule, backends));
            };
            match rule.is_exact {
                true => add(format!("= {}", rule.path)),
                false => {
                    add(format!("{path}/"));
                    if !path.is_empty() {
                        add(format!("= {path}"));
                    }
                }
            }
        }
        locations.entry("/".to_owned()).or_insert_with(|| "return 404;".to_owned());
        let (listen, name) = host.map_or((" default_server", "_"), |name| ("", name));
        writeln!(text, "server {{ listen {address}{listen}; server_name {name};").unwrap();
        for (location, directives) in locations {
            writeln!(text, "location {location} {{ {directives} }}").unwrap();
        }
        text += "}\n";
    }
    text
}

/// Returns a server whose rule is the first regular expression that matches host name, method, header, parameter and path.
fn mapped_server(number: usize, table: &RouteTable, address: SocketAddr, backends: &[u16]) -> String {
    let mut text =
        format!("map \"$host|$request_method|$http_x_a|$arg_q|$uri\" $rule_{number} {{\ndefault none;\n");
    for (index, rule) in table.sorted() {
        let host = match rule.host.map(|host| (host, host.strip_prefix('*'))) {
            None => "[^|]*".to_owned(),
            Some((_, Some(base))) => format!("[^|]+{}", base.replace('.', "[.]")),
            Some((host, None)) => host.replace('.', "[.]"),
        };
        let value = |value: Option<&str>| value.unwrap_or("[^|]*").to_owned();
        let path = rule.path.trim_end_matches('/');
        let path = if rule.is_exact { format!("{}$", rule.path) } else { format!("{path}(?:/|$)") };
        let parts = [host, value(rule.method), value(rule.header), value(rule.query), path];
        writeln!(text, "\"~^{}\" {index};", parts.join("[|]")).unwrap();
    }
    text += "}\n";
    writeln!(text, "server {{ listen {address};").unwrap();
    writeln!(text, "location / {{ if ($rule_{number} = none) {{ return 404; }}").unwrap();
    for (index, rule) in table.rules.iter().enumerate() {
        writeln!(text, "if ($rule_{number} = {index}) {{ {} }}", directives(rule, backends)).unwrap();
    }
    text + "}\n}\n"
}
