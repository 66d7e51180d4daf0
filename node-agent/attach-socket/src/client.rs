//! Client of the agent's socket for attachments.

use std::{io, path::PathBuf, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request,
    body::Bytes,
    client::conn::http1,
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{
    AttachProblem, AttachRequest, AttachedList, AttachedWorkload, AttachmentKey, CollectRequest,
    DetachedCount, NetworkStatus, ProblemCode,
};

/// Maximum size of an answer in bytes: all attachments of a node.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum time for a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// Client of the socket of the agent on this machine. Each request opens a connection.
#[derive(Debug, Clone)]
pub struct AttachClient {
    path: PathBuf,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The agent rejected the request.
    #[error(transparent)]
    Rejected(#[from] AttachProblem),
    /// The socket cannot be opened: no agent runs, or the caller is not root.
    #[error("cannot reach the agent at {path}")]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The connection failed, or the answer is not one of the agent.
    #[error("the agent did not answer: {0}")]
    Broken(String),
}

impl AttachClient {
    /// Creates a client of the socket with this path.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Attaches a network namespace. The same request can be repeated.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached or rejects the request.
    pub async fn attach(&self, request: &AttachRequest) -> Result<AttachedWorkload, AttachError> {
        self.post("/v1/attachments", request).await
    }

    /// Compares an attachment with the kernel.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached, or the attachment does not exist or differs.
    pub async fn check(&self, key: &AttachmentKey) -> Result<AttachedWorkload, AttachError> {
        self.post("/v1/attachments/check", key).await
    }

    /// Removes an attachment. An absent one is not an error.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached or rejects the request.
    pub async fn detach(&self, key: &AttachmentKey) -> Result<DetachedCount, AttachError> {
        self.post("/v1/attachments/detach", key).await
    }

    /// Removes the attachments of a manager that are not listed.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached or rejects the request.
    pub async fn collect(&self, request: &CollectRequest) -> Result<DetachedCount, AttachError> {
        self.post("/v1/attachments/collect", request).await
    }

    /// Returns all attachments of the node.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached.
    pub async fn list(&self) -> Result<AttachedList, AttachError> {
        self.send(Method::GET, "/v1/attachments", Vec::new()).await
    }

    /// Returns the state of the workload network on the node, with the reason why nothing can be attached to the network of
    /// this name, or without a name to the only one.
    ///
    /// # Errors
    /// Returns [`AttachError`] if the agent cannot be reached, or the name contains other characters than names have.
    pub async fn status(&self, network: Option<&str>) -> Result<NetworkStatus, AttachError> {
        let is_plain =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        let path = match network {
            None => "/v1/status".to_owned(),
            Some(name) if is_plain(name) => format!("/v1/status?network={name}"),
            Some(name) => {
                let message = format!("`{}` is not the name of a network", name.escape_debug());
                return Err(AttachProblem { code: ProblemCode::Invalid, message }.into());
            }
        };
        self.send(Method::GET, &path, Vec::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, AttachError> {
        let body = serde_json::to_vec(body).map_err(|error| AttachError::Broken(error.to_string()))?;
        self.send(Method::POST, path, body).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AttachError> {
        let unreachable = |source| AttachError::Unreachable { path: self.path.clone(), source };
        let stream = UnixStream::connect(&self.path).await.map_err(unreachable)?;
        let exchange = exchange(stream, method, path, body);
        match tokio::time::timeout(REQUEST_TIME_MAX, exchange).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(AttachError::Broken("the request took too long".to_owned())),
        }
    }
}

async fn exchange<T: DeserializeOwned>(
    stream: UnixStream,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<T, AttachError> {
    let broken = |error: &dyn std::fmt::Display| AttachError::Broken(error.to_string());
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    // Ends with the sender; errors also reach the request.
    let _connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| broken(&error))?;
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    let is_success = response.status().is_success();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| broken(&error))?.to_bytes();
    if !is_success {
        let problem: AttachProblem = serde_json::from_slice(&body)
            .map_err(|_| AttachError::Broken(String::from_utf8_lossy(&body).into_owned()))?;
        return Err(problem.into());
    }
    serde_json::from_slice(&body).map_err(|error| broken(&error))
}
