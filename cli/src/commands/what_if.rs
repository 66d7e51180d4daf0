//! `what-if`: shows the predicted effect of node failures.

use super::document;
use crate::{
    args::{
        Document,
        what_if::{WhatIf, WhatIfOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::what_if::{is_harmful, tables},
};

pub(crate) async fn run(
    client: &Client,
    arguments: WhatIf,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    // Other commands accept `node/a` too.
    let bare = |name: &String| name.strip_prefix("node/").unwrap_or(name).to_owned();
    let fail: Vec<String> = arguments.nodes.iter().chain(&arguments.fail).map(bare).collect();
    let fail = (!fail.is_empty()).then(|| fail.join(","));
    let answer = client.send(Request::get("/v1/what-if").query("fail", fail)).await?;
    let text = match arguments.output {
        WhatIfOutput::Table => tables(&answer, terminal.style),
        WhatIfOutput::Json => document(&answer, Document::Json),
        WhatIfOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(if is_harmful(&answer) { ExitCode::Problems } else { ExitCode::Success })
}
