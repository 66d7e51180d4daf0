//! `traffic`: traffic of one Service.

use model::kinds::resource::Kind;

use super::{document, get::object_path};
use crate::{
    args::{Document, Traffic, TrafficOutput},
    client::{Client, Request},
    error::{ExitCode, Failure},
    lenient_json::{entries, number},
    output::Terminal,
    resource::Resource,
    views::traffic,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Traffic,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let service = Resource::Object(Kind::Service);
    let path = format!("{}/traffic", object_path(service, &arguments.namespace, &arguments.service));
    let answer = client.send(Request::get(path)).await?;
    let text = match arguments.output {
        TrafficOutput::Table if entries(&answer, "/nodes").next().is_none() => {
            terminal.note("no node has reported traffic of this Service yet");
            return Ok(ExitCode::Success);
        }
        TrafficOutput::Table => {
            let omitted = number(&answer, "/nodesOmitted");
            if omitted > 0 {
                terminal.note(&format!(
                    "{omitted} more nodes, with fewer connections, are included in the \
                                    total only"
                ));
            }
            traffic::by_node(&answer, terminal.style)
        }
        TrafficOutput::Json => document(&answer, Document::Json),
        TrafficOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}
