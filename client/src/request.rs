//! Requests to the control API. A request does not depend on the server that it is sent to.

use bytes::Bytes;
use reqwest::Method;
use serde_json::Value;

/// Request header with the minimum position (epoch and revision) of the state that the response must reflect.
pub const MIN_POSITION: &str = "x-tidegate-min-position";
/// Value of the header [`MIN_POSITION`] with which the server confirms its state with the store, so that the
/// response includes every write that any server accepted before the request.
pub const LATEST: &str = "latest";

/// Request to the control API, which can be sent more than once.
#[derive(Debug, Clone)]
pub struct Request {
    /// HTTP method of the request.
    pub method: Method,
    /// Absolute path of the request, without a query.
    pub path: String,
    /// Query parameters, in the order in which they are sent.
    pub query: Vec<(&'static str, String)>,
    /// Entity tag for the `If-Match` header (RFC 9110, 13.1.1); `None` makes the request unconditional.
    pub if_match: Option<String>,
    /// True if the response must include every write that any server accepted before the request.
    pub is_latest: bool,
    /// Author of a write, recorded in the change history; `None` for the author of the client.
    pub author: Option<String>,
    /// Reason for a write, recorded in the change history; `None` gives no reason.
    pub message: Option<String>,
    /// Request body; `None` for requests without one.
    pub body: Option<Body>,
}

/// Body of a request with its media type.
#[derive(Debug, Clone)]
pub struct Body {
    /// Value of the `Content-Type` header.
    pub media_type: &'static str,
    /// Bytes of the body as sent.
    pub bytes: Bytes,
    /// Representation of the body in messages to the user, such as `@service.yaml`; `None` shows the contents.
    pub label: Option<String>,
}

impl Request {
    /// Creates a request without a body.
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            if_match: None,
            is_latest: false,
            author: None,
            message: None,
            body: None,
        }
    }

    /// Creates a GET request.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Creates a POST request without a body.
    #[must_use]
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Creates a PUT request without a body.
    #[must_use]
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    /// Creates a PATCH request without a body.
    #[must_use]
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    /// Creates a DELETE request.
    #[must_use]
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Sets the body and its `Content-Type`.
    #[must_use]
    pub fn body(self, media_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self { body: Some(Body { media_type, bytes: bytes.into(), label: None }), ..self }
    }

    /// Sets a JSON body with the media type `application/json`.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sets the text that messages to the user show in place of the body.
    #[must_use]
    pub fn label(mut self, label: String) -> Self {
        if let Some(body) = &mut self.body {
            body.label = Some(label);
        }
        self
    }

    /// Makes the request conditional on the entity tag of the object (`If-Match`).
    #[must_use]
    pub fn if_match(self, tag: String) -> Self {
        Self { if_match: Some(tag), ..self }
    }

    /// Requests a linearizable read: the response includes every write that any server accepted before.
    #[must_use]
    pub fn latest(self) -> Self {
        Self { is_latest: true, ..self }
    }

    /// Sets the author of a write, recorded in the change history, instead of that of the client.
    #[must_use]
    pub fn author(self, author: String) -> Self {
        Self { author: Some(author), ..self }
    }

    /// Sets the reason for a write, recorded in the change history; `None` gives no reason.
    #[must_use]
    pub fn message(self, message: Option<String>) -> Self {
        Self { message, ..self }
    }

    /// Adds a query parameter, unless the value is `None`.
    #[must_use]
    pub fn query(mut self, key: &'static str, value: Option<impl Into<String>>) -> Self {
        self.query.extend(value.map(|value| (key, value.into())));
        self
    }

    /// Returns true if the request changes nothing: a GET or a dry run.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let is_dry = self.query.iter().any(|(key, value)| *key == "dryRun" && value == "true");
        self.method == Method::GET || is_dry
    }
}
