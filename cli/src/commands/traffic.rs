//! `traffic`: shows the traffic of one Service.

use model::{kinds::resource::Kind, observed::traffic::NodeTraffic};

use super::{document, get::object_path};
use crate::{
    args::{Document, Traffic, TrafficOutput},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        traffic,
        typed::{decode, documents::OmittedRows, named_rows},
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: Traffic,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let service = Resource::Object(Kind::Service);
    let (namespace, name) = arguments.service.or_in(arguments.namespace);
    let path = format!("{}/traffic", object_path(service, &namespace, &name));
    let answer = client.send(Request::get(path)).await?;
    let text = match arguments.output {
        TrafficOutput::Table if named_rows::<NodeTraffic>(&answer, "/nodes").next().is_none() => {
            terminal.note("no node has reported traffic of this Service yet");
            return Ok(ExitCode::Success);
        }
        TrafficOutput::Table => {
            let OmittedRows { nodes_omitted: omitted, .. } = decode(&answer).unwrap_or_default();
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
