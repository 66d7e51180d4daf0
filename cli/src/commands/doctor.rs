//! `doctor`: runs checks on nodes through their agents, and applies fixes.

use model::{kinds::resource::Kind, primitives::name::Name};
use serde_json::{Value, json};

use super::{document, get::parse_name, prompt};
use crate::{
    args::{
        Document,
        doctor::{Doctor, DoctorOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        doctor::{done, has_failed, is_broken, safe_fixes, table},
        render::unchecked,
        typed::{ObjectHeader, decode_items},
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: Doctor,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let nodes = nodes(client, &arguments.nodes).await?;
    let total = nodes.len();
    let (mut answers, mut failures) = look(client, &nodes).await?;
    if arguments.fix {
        let fixed = fix(client, &answers, arguments.yes, terminal).await?;
        if fixed.is_any {
            (answers, failures) = look(client, &nodes).await?;
        }
        failures.extend(fixed.failures);
    }
    let printed = match arguments.output {
        DoctorOutput::Table => table(&answers, arguments.all, terminal.style),
        DoctorOutput::Json => document(&json!({ "items": answers }), Document::Json),
        DoctorOutput::Yaml => document(&json!({ "items": answers }), Document::Yaml),
    };
    terminal.print(&printed)?;
    // The checks of nodes do not cover endpoints.
    if let Some(text) =
        client.send(Request::get("/v1/status")).await.ok().and_then(|status| unchecked(&status))
    {
        terminal.note(&format!("Services: {text}; `tidegate get endpoints -A -o wide` lists them"));
    }
    for failure in &failures {
        terminal.report(failure);
    }
    if !failures.is_empty() {
        return Err(Failure::Some { failed: failures.len(), total, code: ExitCode::Failed });
    }
    Ok(if is_broken(&answers) { ExitCode::Problems } else { ExitCode::Success })
}

/// Requests the check results of each node. Returns the results, and the failures of the nodes without a
/// result.
async fn look(client: &Client, nodes: &[Name]) -> Result<(Value, Vec<Failure>), Failure> {
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for node in nodes {
        let path = format!("/v1/{}/{node}/doctor", Kind::Node.plural());
        match client.send(Request::get(path)).await {
            Ok(answer) => answers.push(answer),
            // A node that does not respond must not hide the results of the others.
            Err(failure) if failure.problem_code().is_some() && nodes.len() > 1 => failures.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    Ok((Value::Array(answers), failures))
}

/// Outcome of the fixes that `doctor` requested from the nodes.
struct FixOutcome {
    /// True if at least one finding could be fixed, so that fixes were requested.
    is_any: bool,
    failures: Vec<Failure>,
}

async fn fix(
    client: &Client,
    answers: &Value,
    is_confirmed: bool,
    terminal: &mut Terminal,
) -> Result<FixOutcome, Failure> {
    let fixes = safe_fixes(answers);
    let mut fixed = FixOutcome { is_any: !fixes.is_empty(), failures: Vec::new() };
    if fixes.is_empty() {
        terminal.note("no finding can be fixed with --fix");
        return Ok(fixed);
    }
    let wanted = fixes.iter().map(|(node, fixes)| {
        let fixes: Vec<_> = fixes.iter().map(String::as_str).collect();
        format!("{node}: {}", fixes.join(", "))
    });
    let wanted = wanted.collect::<Vec<_>>().join("; ");
    prompt::confirm(&format!("apply these fixes ({wanted})?"), is_confirmed, "say --yes", terminal)?;
    for (node, fixes) in fixes {
        let node = parse_name(Resource::Object(Kind::Node), &node)?;
        let path = format!("/v1/{}/{node}/fixes", Kind::Node.plural());
        match client.send(Request::post(path).json(&json!({ "fixes": fixes }))).await {
            Ok(answer) => {
                terminal.note(done(&answer).trim_end());
                if has_failed(&answer) {
                    let message = format!("some fixes failed on node {node}");
                    fixed.failures.push(Failure::Usage { message, hint: None });
                }
            }
            Err(failure) if failure.problem_code().is_some() => fixed.failures.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    Ok(fixed)
}

async fn nodes(client: &Client, given: &[String]) -> Result<Vec<Name>, Failure> {
    let resource = Resource::Object(Kind::Node);
    if !given.is_empty() {
        let bare = given.iter().map(|name| name.strip_prefix("node/").unwrap_or(name));
        return bare.map(|name| parse_name(resource, name)).collect();
    }
    let listing = client.list(|| Request::get(format!("/v1/{}", Kind::Node.plural()))).await?.envelope;
    let nodes = decode_items::<ObjectHeader>(&listing, "/items");
    nodes.iter().map(|node| parse_name(resource, &node.metadata.name)).collect()
}
