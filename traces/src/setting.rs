//! Settings of the export, read from the standard environment variables of OpenTelemetry.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// Default timeout of a request to the collector in milliseconds (OTLP exporter specification).
const TIMEOUT_MILLIS: u64 = 10_000;
/// Default interval between two exports of metrics in milliseconds (OpenTelemetry SDK specification).
const METRIC_INTERVAL_MILLIS: u64 = 60_000;

/// Settings of the export of traces and metrics.
#[derive(Debug, Clone)]
pub struct Setting {
    /// URL to which traces are posted; `None` sends no traces.
    pub traces_url: Option<Url>,
    /// URL to which metrics are posted; `None` sends no metrics.
    pub metrics_url: Option<Url>,
    /// Headers of each request, such as credentials.
    pub headers: HeaderMap,
    /// Maximum duration of a request.
    pub timeout: Duration,
    /// Interval between two exports of metrics.
    pub metric_interval: Duration,
    /// Name of the program in the collector; `None` for that of the program itself.
    pub service_name: Option<String>,
    /// PEM file with the trusted CAs of the collector; `None` trusts the CAs of the system.
    pub ca_file: Option<PathBuf>,
}

/// Environment variable with an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{variable} {problem}")]
pub struct SettingError {
    variable: String,
    problem: String,
}

impl SettingError {
    pub(crate) fn new(variable: &str, problem: impl Into<String>) -> Self {
        Self { variable: variable.to_owned(), problem: problem.into() }
    }
}

impl Setting {
    /// Reads the settings from environment variables. Returns `None` if no endpoint is set, or if
    /// `OTEL_SDK_DISABLED` is true.
    ///
    /// # Errors
    /// Returns the first variable with an invalid value. Values are not part of messages, because they may be
    /// credentials.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Option<Self>, SettingError> {
        let set =
            variables.into_iter().filter(|(name, value)| name.starts_with("OTEL_") && !value.is_empty());
        let variables = Variables(set.collect());
        let is_disabled =
            variables.get("OTEL_SDK_DISABLED").is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        if is_disabled {
            return Ok(None);
        }
        let [traces_url, metrics_url] =
            [variables.url("TRACES", "v1/traces")?, variables.url("METRICS", "v1/metrics")?];
        if traces_url.is_none() && metrics_url.is_none() {
            return Ok(None);
        }
        if let Some((variable, value)) = variables.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            && value != "http/protobuf"
        {
            return Err(SettingError::new(variable, "must be http/protobuf"));
        }
        Ok(Some(Self {
            traces_url,
            metrics_url,
            headers: variables.headers()?,
            timeout: variables.millis("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_MILLIS)?,
            metric_interval: variables.millis("OTEL_METRIC_EXPORT_INTERVAL", METRIC_INTERVAL_MILLIS)?,
            service_name: variables.get("OTEL_SERVICE_NAME").map(|(_, name)| name.to_owned()),
            ca_file: variables.get("OTEL_EXPORTER_OTLP_CERTIFICATE").map(|(_, path)| path.into()),
        }))
    }
}

struct Variables(BTreeMap<String, String>);

impl Variables {
    fn get(&self, name: &str) -> Option<(&str, &str)> {
        self.0.get_key_value(name).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the URL for one signal: its own endpoint as it is, or the common endpoint with the path of the
    /// signal; `None` if none is set or if the exporter of the signal is `none`.
    fn url(&self, signal: &str, path: &str) -> Result<Option<Url>, SettingError> {
        if self.get(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|(_, exporter)| exporter == "none") {
            return Ok(None);
        }
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
        let (variable, text) = match (own, self.get("OTEL_EXPORTER_OTLP_ENDPOINT")) {
            (Some((variable, url)), _) => (variable, url.to_owned()),
            (None, Some((variable, base))) => (variable, format!("{}/{path}", base.trim_end_matches('/'))),
            (None, None) => return Ok(None),
        };
        let url =
            text.parse().ok().filter(|url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let problem = "must be an http or https URL, such as http://collector:4318";
        url.map(Some).ok_or_else(|| SettingError::new(variable, problem))
    }

    /// Returns the headers of `OTEL_EXPORTER_OTLP_HEADERS`, a list of `name=value` separated by commas.
    fn headers(&self) -> Result<HeaderMap, SettingError> {
        let mut headers = HeaderMap::new();
        let Some((variable, list)) = self.get("OTEL_EXPORTER_OTLP_HEADERS") else { return Ok(headers) };
        for pair in list.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let parsed = pair.split_once('=').and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).ok()?;
                let mut value = HeaderValue::try_from(decode_percent(value.trim())?).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            let problem = "must list headers as name=value, separated by commas";
            let (name, value) = parsed.ok_or_else(|| SettingError::new(variable, problem))?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    fn millis(&self, name: &str, default: u64) -> Result<Duration, SettingError> {
        let Some((variable, text)) = self.get(name) else { return Ok(Duration::from_millis(default)) };
        let millis = text.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis);
        let problem = "must be a positive number of milliseconds";
        millis.ok_or_else(|| SettingError::new(variable, problem))
    }
}

/// Decodes the percent encoding (RFC 3986 §2.1) of a header value. Returns `None` if it is malformed.
fn decode_percent(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        decoded.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            other => other,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Setting>, SettingError> {
        let own = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Setting::from_variables(own)
    }

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        assert!(read(&[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        let neither = [endpoint, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")];
        assert!(read(&neither).unwrap().is_none());
    }

    #[test]
    fn the_endpoint_of_a_signal_wins_over_the_common_one() {
        let both = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://other/in"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, authorization=Basic%20eDp5"),
        ];
        let setting = read(&both).unwrap().unwrap();
        assert_eq!(setting.traces_url.unwrap().as_str(), "http://collector:4318/base/v1/traces");
        assert_eq!(setting.metrics_url.unwrap().as_str(), "https://other/in");
        assert_eq!(
            (setting.headers["a"].as_bytes(), setting.headers["authorization"].as_bytes()),
            (&b"b"[..], &b"Basic eDp5"[..])
        );
        assert_eq!(setting.timeout, Duration::from_secs(10));
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_the_variable_only() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ] {
            let error = read(&[endpoint, (name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name) && !error.contains("secret"), "{error}");
        }
    }
}
