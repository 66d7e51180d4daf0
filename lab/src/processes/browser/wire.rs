//! Encoding of WebDriver requests and parsing of responses, for commands that the WebDriver standard does not
//! contain.

use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// WebDriver command with a path relative to the session URL.
#[derive(Debug)]
pub(super) struct Command {
    path: &'static str,
    body: Value,
}

impl Command {
    /// Builds the request that runs a command of the Chrome DevTools Protocol.
    pub(super) fn devtools(command: &str, parameters: &Value) -> Self {
        Self { path: "goog/cdp/execute", body: json!({"cmd": command, "params": parameters}) }
    }

    /// Builds the request that fetches the console entries since the last fetch.
    pub(super) fn console() -> Self {
        Self { path: "se/log", body: json!({"type": "browser"}) }
    }
}

impl WebDriverCompatibleCommand for Command {
    fn endpoint(&self, base_url: &Url, session_id: Option<&str>) -> Result<Url, ParseError> {
        base_url.join(&format!("session/{}/{}", session_id.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _request_url: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// Parses the port number in the message that ChromeDriver prints when it is ready.
pub(super) fn port_in(log: &str) -> Option<u16> {
    let rest = log.split("successfully on port ").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the console lines that report an error or a security violation.
pub(super) fn complaints(log: &Value) -> Vec<String> {
    let lines = log.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_wrong = |line: &&Value| line["level"] == "SEVERE" || line["source"] == "security";
    let say = |line: &Value| {
        format!("{}: {}", line["source"].as_str().unwrap_or("?"), line["message"].as_str().unwrap_or("?"))
    };
    lines.iter().filter(is_wrong).map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_line_that_names_it() {
        let log =
            "Starting ChromeDriver 1.2.3 on port 0\nChromeDriver was started successfully on port 43245.\n";
        assert_eq!(port_in(log), Some(43245));
        assert_eq!(port_in("Starting ChromeDriver on port 0"), None);
    }

    #[test]
    fn errors_and_what_security_stops_are_complaints_and_nothing_else_is() {
        let log = json!([
            {"level": "SEVERE", "source": "javascript", "message": "x is not defined"},
            {"level": "WARNING", "source": "security", "message": "stopped"},
            {"level": "WARNING", "source": "other", "message": "a hint"},
        ]);
        assert_eq!(complaints(&log), ["javascript: x is not defined", "security: stopped"]);
        assert_eq!(complaints(&Value::Null), Vec::<String>::new());
    }
}
