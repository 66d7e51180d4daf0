//! `authority`: certificate authorities that sign the certificates of agents.

use serde_json::{Value, json};

use super::security::show;
use crate::{
    args::authority::{Authority, AuthorityRetire, AuthorityRotate},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::authority::authority,
};

pub(crate) async fn run(
    client: &Client,
    command: Authority,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    match command {
        Authority::Show(form) => {
            let answer = client.send(Request::get("/v1/authority")).await?;
            show(&answer, form.output, authority(&answer), terminal)
        }
        Authority::Rotate(AuthorityRotate { transition, output }) => {
            let mut body = json!({});
            if let Some(transition) = transition {
                body["transitionSeconds"] = json!(transition.as_secs());
            }
            let answer: Value = client.send(Request::post("/v1/authority/rotate").json(&body)).await?;
            show(&answer, output, authority(&answer), terminal)
        }
        Authority::Retire(AuthorityRetire { force }) => {
            let force = force.then(|| "true".to_owned());
            client.send(Request::delete("/v1/authority/former").query("force", force)).await?;
            terminal.print("the former authority is no longer trusted\n")?;
            Ok(ExitCode::Success)
        }
    }
}
