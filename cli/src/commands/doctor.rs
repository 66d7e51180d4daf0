//! `doctor`: what is odd on the machines of nodes, asked of their agents at this moment.

use model::{name::Name, resource::Kind};
use serde_json::{Value, json};

use super::{document, get::parse_name};
use crate::{
    args::{
        Document,
        doctor::{Doctor, DoctorOutput},
    },
    client::{Client, Request},
    doctor::{is_broken, table},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    view::{items, text},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Doctor,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let nodes = nodes(client, &arguments.nodes).await?;
    let total = nodes.len();
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for node in nodes {
        let path = format!("/v1/{}/{node}/doctor", Kind::Node.plural());
        match client.send(Request::get(path)).await {
            Ok(answer) => answers.push(answer),
            // A node that is silent hides nothing of the others.
            Err(failure) if failure.problem_code().is_some() && total > 1 => failures.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    let answers = Value::Array(answers);
    let printed = match arguments.output {
        DoctorOutput::Table => table(&answers, arguments.all, terminal.style),
        DoctorOutput::Json => document(&json!({ "items": answers }), Document::Json),
        DoctorOutput::Yaml => document(&json!({ "items": answers }), Document::Yaml),
    };
    terminal.print(&printed)?;
    for failure in &failures {
        terminal.report(failure);
    }
    if !failures.is_empty() {
        return Err(Failure::Some { failed: failures.len(), total, code: ExitCode::Failed });
    }
    Ok(if is_broken(&answers) { ExitCode::Usage } else { ExitCode::Success })
}

async fn nodes(client: &Client, given: &[String]) -> Result<Vec<Name>, Failure> {
    let resource = Resource::Object(Kind::Node);
    if !given.is_empty() {
        let bare = given.iter().map(|name| name.strip_prefix("node/").unwrap_or(name));
        return bare.map(|name| parse_name(resource, name)).collect();
    }
    let listing = client.list(|| Request::get(format!("/v1/{}", Kind::Node.plural()))).await?.envelope;
    items(&listing, "/items").iter().map(|node| parse_name(resource, &text(node, "/metadata/name"))).collect()
}
