//! Execution of an operation by the agent.

use attach_socket::{
    AttachProblem, AttachRequest, AttachedWorkload, CollectRequest, ProblemCode,
    client::{AttachClient, AttachError},
};
use serde_json::Value;

use crate::{
    CniCode, CniError,
    parse::{Invocation, Operation, WorkloadArgs},
    render,
};

/// Carries out an operation. Returns the answer for standard output; `None` for operations without one.
///
/// # Errors
/// Returns an error of the specification.
pub async fn run(invocation: Invocation) -> Result<Option<Value>, CniError> {
    let Invocation { operation, version, name, socket, network, prev_result } = invocation;
    let agent = AttachClient::new(socket.into());
    let manager = format!("cni:{name}");
    match operation {
        Operation::Add { key, netns, workload: WorkloadArgs { namespace, name, labels }, dns } => {
            let workload = name;
            let request = AttachRequest { key, netns, network, namespace, workload, labels, manager };
            let attached = agent.attach(&request).await.map_err(|error| failed(&error))?;
            Ok(Some(render::success(version, &attached, &request.netns, prev_result.as_ref(), &dns)))
        }
        Operation::Del(key) => {
            agent.detach(&key).await.map_err(|error| failed(&error))?;
            Ok(None)
        }
        Operation::Check(key) => {
            let attached = agent.check(&key).await.map_err(|error| failed(&error))?;
            same_addresses(prev_result.as_ref(), &attached)?;
            Ok(None)
        }
        // Without a list, every attachment may be in use.
        Operation::Gc(None) => Ok(None),
        Operation::Gc(Some(valid)) => {
            agent.collect(&CollectRequest { manager, valid }).await.map_err(|error| failed(&error))?;
            Ok(None)
        }
        Operation::Status => match agent.status(network.as_deref()).await {
            Ok(status) => status.problem.map_or(Ok(None), |problem| Err(unavailable(&problem))),
            Err(AttachError::Rejected(problem)) => Err(unavailable(&problem)),
            Err(error) => {
                Err(CniError::new(CniCode::NotAvailable, "the agent cannot be reached", chain(&error)))
            }
        },
        Operation::Version => Ok(Some(render::versions(version))),
    }
}

fn same_addresses(prev_result: Option<&Value>, attached: &AttachedWorkload) -> Result<(), CniError> {
    match prev_result.and_then(|result| render::missing_address(result, attached)) {
        None => Ok(()),
        Some(address) => {
            let message = "the attachment differs from the result of ADD";
            Err(CniError::new(CniCode::Rejected, message, format!("the result does not have {address}")))
        }
    }
}

fn unavailable(problem: &AttachProblem) -> CniError {
    CniError::new(CniCode::NotAvailable, "no container can be added", &problem.message)
}

fn failed(error: &AttachError) -> CniError {
    match error {
        AttachError::Rejected(problem) => {
            let code = match problem.code {
                ProblemCode::Invalid => CniCode::InvalidConfig,
                ProblemCode::NoNamespace | ProblemCode::NotFound => CniCode::UnknownContainer,
                ProblemCode::NotReady | ProblemCode::Exhausted | ProblemCode::Busy | ProblemCode::Journal => {
                    CniCode::TryAgain
                }
                ProblemCode::InterfaceExists
                | ProblemCode::InUse
                | ProblemCode::Differs
                | ProblemCode::Kernel => CniCode::Rejected,
            };
            CniError::new(code, "the agent rejected the operation", &problem.message)
        }
        AttachError::Unreachable { .. } | AttachError::Broken(_) => {
            CniError::new(CniCode::TryAgain, "the agent cannot be reached", chain(error))
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
