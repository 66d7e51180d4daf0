//! `namespaces`: lists the namespaces that contain objects, with the number of objects of each kind.

use std::collections::BTreeMap;

use model::kinds::resource::Kind;
use serde_json::{Value, json};

use super::{document, get::collection_path};
use crate::{
    args::{Document, Namespaces, StatusOutput},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    terminal::table::{Cell, Table},
    views::typed::{ObjectHeader, decode_items},
};

/// Kinds that are counted, with the headings of their columns.
const KINDS: [(Kind, &str); 3] =
    [(Kind::Service, "SERVICES"), (Kind::EndpointSet, "ENDPOINTSETS"), (Kind::Workload, "WORKLOADS")];

/// Number of objects of each of [`KINDS`] by namespace.
type Counts = BTreeMap<String, [u64; KINDS.len()]>;

pub(crate) async fn run(
    client: &Client,
    arguments: Namespaces,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Namespaces { watch: _, output } = arguments;
    let counts = counts(client).await?;
    let items = || -> Vec<Value> {
        let item = |(name, [services, sets, workloads]): (&String, &[u64; KINDS.len()])| json!({ "name": name, "services": services, "endpointSets": sets, "workloads": workloads });
        counts.iter().map(item).collect()
    };
    let text = match output {
        StatusOutput::Table => {
            let mut table = Table::new(["NAME"].into_iter().chain(KINDS.map(|(_, title)| title)).collect());
            for (name, counts) in &counts {
                let counts = counts.iter().map(|count| Cell::from(count.to_string()));
                table.push([Cell::from(name)].into_iter().chain(counts).collect());
            }
            if table.is_empty() {
                terminal.note("no namespace contains objects");
                return Ok(ExitCode::Success);
            }
            table.render(terminal.style)
        }
        StatusOutput::Json => document(&json!({ "items": items() }), Document::Json),
        StatusOutput::Yaml => document(&json!({ "items": items() }), Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}

/// Reads the numbers of objects, from the lists of all objects if the server is too old to count them.
async fn counts(client: &Client) -> Result<Counts, Failure> {
    match client.send(Request::get("/v1/namespaces")).await {
        Ok(list) => {
            let rows = list["items"].as_array().into_iter().flatten();
            let count =
                |row: &Value| KINDS.map(|(kind, _)| row["objects"][kind.as_str()].as_u64().unwrap_or(0));
            Ok(rows.map(|row| (row["name"].as_str().unwrap_or_default().to_owned(), count(row))).collect())
        }
        Err(failure) if failure.problem_code() == Some("NotFound") => count_lists(client).await,
        Err(failure) => Err(failure),
    }
}

async fn count_lists(client: &Client) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    for (column, (kind, _)) in KINDS.iter().enumerate() {
        let listing = client.list(|| Request::get(collection_path(Resource::Object(*kind), None))).await?;
        for header in decode_items::<ObjectHeader>(&listing.envelope, "/items") {
            counts.entry(header.metadata.namespace).or_default()[column] += 1;
        }
    }
    Ok(counts)
}
