//! `wait`: returns when an object, or every node, has reached the requested state. Until then, prints the
//! reason why it has not.

use std::time::{Duration, Instant};

use model::{
    kinds::resource::Kind,
    primitives::{name::Name, quantity::Revision},
};

use super::get::{object_path, parse_located};
use crate::{
    args::wait::{Goal, Wait},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        typed::{decode, documents::ClusterStatus},
        waiting::{Progress, of_nodes, of_object},
    },
};

/// Initial poll interval; doubled after each poll up to [`LOOK_CAP`].
const LOOK_FLOOR: Duration = Duration::from_millis(50);
const LOOK_CAP: Duration = Duration::from_secs(1);

pub(crate) async fn run(
    client: &Client,
    arguments: Wait,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let subject = PolledObjects::of(client, &arguments).await?;
    let Wait { goal, at_most, quiet, .. } = &arguments;
    poll(client, &subject, &PollOptions { goal, at_most: *at_most, is_quiet: *quiet }, terminal).await?;
    terminal.print(&format!("{} {}\n", subject.name(), words(&arguments.goal)))?;
    Ok(ExitCode::Success)
}

/// Waits until every connected node has verified all changes committed so far. Prints on stderr only.
pub(super) async fn for_all_nodes(
    client: &Client,
    at_most: Duration,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let subject = PolledObjects::all_nodes(client).await?;
    let goal = &Goal::Verified;
    poll(client, &subject, &PollOptions { goal, at_most, is_quiet: false }, terminal).await?;
    terminal.note(&format!("{} {}", subject.name(), words(goal)));
    Ok(())
}

/// Waits until a Node is ready. Prints progress on stderr only.
pub(super) async fn for_node(
    client: &Client,
    node: &Name,
    at_most: Duration,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = format!("/v1/{}/{node}", Kind::Node.plural());
    let subject = PolledObjects::Object { name: format!("node/{node}"), path };
    let goal = Goal::Condition { condition: "Ready".to_owned(), status: "True".to_owned() };
    poll(client, &subject, &PollOptions { goal: &goal, at_most, is_quiet: false }, terminal).await
}

/// Goal of the polls, and their limits.
struct PollOptions<'a> {
    goal: &'a Goal,
    /// Maximum time to wait.
    at_most: Duration,
    /// True if no progress is printed.
    is_quiet: bool,
}

async fn poll(
    client: &Client,
    subject: &PolledObjects,
    options: &PollOptions<'_>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let PollOptions { goal, at_most, is_quiet } = *options;
    let until = Instant::now() + at_most;
    let (mut pause, mut said) = (LOOK_FLOOR, String::new());
    loop {
        let why_not = match subject.look(client, goal, terminal, is_quiet).await? {
            Progress::Reached => return Ok(()),
            Progress::Never(known) => {
                let hint = if known.is_empty() {
                    "it has no conditions".to_owned()
                } else {
                    format!("its conditions are {known}")
                };
                return Err(Failure::usage(format!("{} has no such condition", subject.name()), hint));
            }
            Progress::NotYet(why_not) => why_not,
        };
        if Instant::now() + pause > until {
            return Err(Failure::NotReached { name: subject.name(), after: at_most, why_not });
        }
        if !is_quiet && said != why_not {
            terminal.note(&format!("waiting: {why_not}"));
            said = why_not;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_CAP);
    }
}

/// Subject of `wait`, whose state is polled: one object, or all nodes.
enum PolledObjects {
    Object { name: String, path: String },
    Nodes { revision: Revision },
}

impl PolledObjects {
    async fn of(client: &Client, arguments: &Wait) -> Result<Self, Failure> {
        let Some(target) = &arguments.target else {
            if arguments.goal != Goal::Verified {
                return Err(Failure::usage("which object?", "an object is required for this goal"));
            }
            return Self::all_nodes(client).await;
        };
        let [resource @ Resource::Object(_)] = target.resources[..] else {
            return Err(Failure::usage(
                "only one object can be waited for at a time",
                "write `wait KIND/NAME`",
            ));
        };
        let given: Vec<&String> = target.name.iter().chain(&arguments.name).collect();
        let [name] = given[..] else {
            let word = resource.singular();
            return Err(Failure::usage(
                format!("which {word}?"),
                format!("the name of the {word} is missing"),
            ));
        };
        let (namespace, name) = parse_located(resource, name, &arguments.namespace)?;
        let path = object_path(resource, &namespace, &name);
        Ok(Self::Object { name: format!("{}/{name}", resource.singular()), path })
    }

    /// Returns all nodes, with the revision of the newest change.
    async fn all_nodes(client: &Client) -> Result<Self, Failure> {
        let status = client.send(Request::get("/v1/status")).await?;
        let ClusterStatus { position, .. } = decode(&status).unwrap_or_default();
        Ok(Self::Nodes { revision: position.unwrap_or_default().revision })
    }

    fn name(&self) -> String {
        match self {
            Self::Object { name, .. } => name.clone(),
            Self::Nodes { revision } => format!("revision {revision}"),
        }
    }

    async fn look(
        &self,
        client: &Client,
        goal: &Goal,
        terminal: &mut Terminal,
        is_quiet: bool,
    ) -> Result<Progress, Failure> {
        match self {
            Self::Object { path, .. } => match client.send(Request::get(path)).await {
                Ok(object) => Ok(of_object(&object, goal)),
                Err(failure) if failure.problem_code() == Some("NotFound") => Ok(match goal {
                    Goal::Deleted => Progress::Reached,
                    Goal::Verified | Goal::Condition { .. } => {
                        Progress::NotYet("the object does not exist".to_owned())
                    }
                }),
                Err(failure) => Err(failure),
            },
            Self::Nodes { revision } => {
                let path = format!("/v1/{}", Kind::Node.plural());
                let nodes = client.list(|| Request::get(&path)).await?.envelope;
                let (progress, absent) = of_nodes(&nodes, *revision);
                if progress == Progress::Reached && !absent.is_empty() && !is_quiet {
                    terminal
                        .note(&format!("not connected, so their state is unknown: {}", absent.join(", ")));
                }
                Ok(progress)
            }
        }
    }
}

fn words(goal: &Goal) -> String {
    match goal {
        Goal::Verified => "is verified on every node".to_owned(),
        Goal::Deleted => "is gone".to_owned(),
        Goal::Condition { condition, status } => format!("is {condition}={status}"),
    }
}
