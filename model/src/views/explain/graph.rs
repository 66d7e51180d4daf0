//! Graph of the packet program of a Service on one node, from frontends through verdicts to endpoints, as
//! Graphviz or Mermaid text.

use std::{collections::BTreeMap, fmt::Write, net::SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::compiled::{CompiledService, UnsupportedField},
    primitives::quantity::Weight,
    program::{
        self as program, Destination, Frontend, Masquerade, NodeLocation, Role, Route, Target, Verdict,
    },
};

/// Maximum number of endpoints drawn for one verdict. If there are more, one further box shows their number.
const TARGETS_DRAWN_MAX: usize = 50;

/// Language of the rendered graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GraphForm {
    /// Graphviz DOT.
    Dot,
    /// Mermaid flowchart, for Markdown viewers.
    Mermaid,
}

/// Boxes and arrows of the graph. Boxes with the same text are merged.
#[derive(Default)]
struct Drawing {
    boxes: BTreeMap<String, usize>,
    arrows: Vec<(usize, usize, String)>,
}

/// Returns the text of a graph that shows the packet program of a Service on one node.
///
/// # Errors
/// Returns the settings that no proxy mode supports, because of which the Service is not programmed.
pub fn graph(
    service: &CompiledService,
    place: &NodeLocation,
    form: GraphForm,
) -> Result<String, Vec<UnsupportedField>> {
    let program = program::program(service, place)?;
    let mut drawing = Drawing::default();
    for (frontend, route) in &program.frontends {
        drawing.frontend(frontend, route);
    }
    for address in &program.virtual_addresses {
        let closed = drawing.of(format!("{address}: any other port"));
        let refuse = drawing.of("refused".to_owned());
        drawing.arrow(closed, refuse, "");
    }
    Ok(match form {
        GraphForm::Dot => drawing.dot(&service.service.to_string()),
        GraphForm::Mermaid => drawing.mermaid(),
    })
}

impl Drawing {
    fn of(&mut self, label: String) -> usize {
        let next = self.boxes.len();
        *self.boxes.entry(label).or_insert(next)
    }

    fn arrow(&mut self, from: usize, to: usize, label: &str) {
        let arrow = (from, to, label.to_owned());
        if !self.arrows.contains(&arrow) {
            self.arrows.push(arrow);
        }
    }

    fn frontend(&mut self, frontend: &Frontend, route: &Route) {
        let protocol = frontend.protocol.as_str().to_lowercase();
        let role = match route.role {
            Role::ClusterIp => "cluster IP",
            Role::ExternalIp => "external IP",
            Role::LoadBalancer => "load balancer",
            Role::NodePort => "node port",
        };
        let at = match frontend.destination {
            Destination::Address(address) => address.to_string(),
            Destination::AnyLocal(family) => format!("any {} address of the node", family.as_str()),
        };
        let mut from = self.of(format!("{role} {at} {}/{protocol}", frontend.ports));
        let mut how = String::new();
        if let Some(allowed) = &route.allowed_sources {
            let listed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            let check = self.of(format!("source in {} or the node?", listed.join(", ")));
            let dropped = self.of("dropped".to_owned());
            self.arrow(from, check, "");
            self.arrow(check, dropped, "no");
            (from, how) = (check, "yes".to_owned());
        }
        if let Some(verdict) = route.uniform() {
            return self.verdict(from, &how, verdict, route);
        }
        let who = self.of(format!("{role} {at} {}/{protocol}: who connects?", frontend.ports));
        self.arrow(from, who, &how);
        for (class, verdict) in ["workloads", "the node", "elsewhere"].into_iter().zip(route.verdicts()) {
            self.verdict(who, class, verdict, route);
        }
    }

    fn verdict(&mut self, from: usize, how: &str, verdict: &Verdict, route: &Route) {
        let to = match verdict {
            Verdict::Reject => self.of("refused".to_owned()),
            Verdict::Drop => self.of("dropped".to_owned()),
            Verdict::Relay { port } => self.of(format!("listener at port {port}")),
            Verdict::Forward { masquerade, targets } => {
                let masquerade = match masquerade {
                    Masquerade::Never => "source kept",
                    Masquerade::OffCluster => "source masqueraded if it is no workload",
                    Masquerade::Always => "source masqueraded",
                };
                let stays =
                    route.affinity_seconds.map(|seconds| format!(", stays {seconds} s")).unwrap_or_default();
                let names: Vec<_> = targets.keys().take(TARGETS_DRAWN_MAX).map(name).collect();
                let choose =
                    self.of(format!("one of {} ({masquerade}{stays}): {}", targets.len(), names.join(" ")));
                self.targets(choose, targets);
                choose
            }
        };
        self.arrow(from, to, how);
    }

    fn targets(&mut self, from: usize, targets: &BTreeMap<Target, Weight>) {
        let sum: u64 = targets.values().map(|weight| u64::from(weight.0)).sum();
        for (target, weight) in targets.iter().take(TARGETS_DRAWN_MAX) {
            let to = self.of(format!("endpoint {}", name(target)));
            self.arrow(from, to, &format!("{} of {sum}", weight.0));
        }
        let more = targets.len().saturating_sub(TARGETS_DRAWN_MAX);
        if more > 0 {
            let to = self.of(format!("{more} more endpoints"));
            self.arrow(from, to, "");
        }
    }

    fn in_order(&self) -> Vec<(usize, &str)> {
        let mut boxes: Vec<_> = self.boxes.iter().map(|(label, number)| (*number, label.as_str())).collect();
        boxes.sort_unstable();
        boxes
    }

    fn dot(&self, name: &str) -> String {
        let mut text = format!("digraph \"{}\" {{\n  rankdir=LR\n  node [shape=box]\n", quoted(name));
        for (number, label) in self.in_order() {
            put(&mut text, format_args!("  n{number} [label=\"{}\"]\n", quoted(label)));
        }
        for (from, to, label) in &self.arrows {
            let label =
                if label.is_empty() { String::new() } else { format!(" [label=\"{}\"]", quoted(label)) };
            put(&mut text, format_args!("  n{from} -> n{to}{label}\n"));
        }
        text + "}\n"
    }

    fn mermaid(&self) -> String {
        let mut text = "flowchart LR\n".to_owned();
        for (number, label) in self.in_order() {
            put(&mut text, format_args!("  n{number}[\"{}\"]\n", quoted(label)));
        }
        for (from, to, label) in &self.arrows {
            let label = if label.is_empty() { String::new() } else { format!("|\"{}\"|", quoted(label)) };
            put(&mut text, format_args!("  n{from} -->{label} n{to}\n"));
        }
        text
    }
}

fn name(target: &Target) -> String {
    match target.port {
        Some(port) => SocketAddr::new(target.address, port.get()).to_string(),
        None => format!("{} at the requested port", target.address),
    }
}

/// Escapes a text for use in double quotes. The texts normally contain neither quotes nor backslashes;
/// escaping protects the graph from unexpected ones.
fn quoted(text: &str) -> String {
    text.replace('\\', "/").replace('"', "'")
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing into a String does not fail");
}
