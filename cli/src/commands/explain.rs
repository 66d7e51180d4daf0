//! `explain`: traces a packet through the nodes, or explains why an address or a Service does or does not
//! respond.

use clap::ValueEnum;
use model::{kinds::resource::Kind, views::explain::Explanation};

use super::{document, get::object_path};
use crate::{
    args::{
        Document,
        explain::{Explain, ExplainOutput, ExplainSubject},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{explain, typed::decode_or_default},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let subject = arguments.subject().map_err(|message| Failure::Usage { message, hint: None })?;
    let Explain { at, namespace, desired_only, graph, output, .. } = arguments;
    let request = match &subject {
        ExplainSubject::Packet { source, destination, protocol } => Request::get("/v1/explain")
            .query("source", Some(source.to_string()))
            .query("destination", Some(destination.ip().to_string()))
            .query("protocol", Some(*protocol))
            .query("port", Some(destination.port().to_string())),
        ExplainSubject::Address(address) => {
            Request::get("/v1/explain").query("destination", Some(address.to_string()))
        }
        ExplainSubject::Service(name) => {
            let (namespace, name) = name.clone().or_in(namespace);
            let object = object_path(Resource::Object(Kind::Service), &namespace, &name);
            let form = graph.and_then(|form| form.to_possible_value());
            let form = form.map(|form| form.get_name().to_owned());
            Request::get(format!("{object}/explain")).query("graph", form)
        }
    };
    if graph.is_some() && !matches!(subject, ExplainSubject::Service(_)) {
        let message = "--graph requires a Service; packets and addresses have no graph".to_owned();
        return Err(Failure::Usage { message, hint: None });
    }
    // The graph needs no data from the nodes.
    let desired_only = desired_only || graph.is_some();
    let request = request.query("node", at.map(|node| node.to_string()));
    let request = request.query("desiredOnly", desired_only.then_some("true"));
    let answer = client.send(request).await?;
    let text = match output {
        ExplainOutput::Text if graph.is_some() => {
            let Explanation { graph, .. } = decode_or_default(Some(&answer));
            let drawing = graph.unwrap_or_default();
            if drawing.is_empty() {
                terminal.note("the graph is empty: the Service is not programmed");
            }
            drawing
        }
        ExplainOutput::Text => explain::explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}
