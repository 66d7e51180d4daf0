//! Validation rules of `spec.healthCheck`.

use crate::{
    kinds::{
        health_check::{
            CA_BYTES_MAX, EXPECT_BYTES_MAX, GrpcCheck, HealthCheck, HealthCheckType, HttpCheck,
            SEND_BYTES_MAX, TlsCheck, UdpCheck,
        },
        service::{Protocol, ServicePort, ServiceSpec},
    },
    primitives::violation::{
        Violation,
        ViolationCode::{Conflict, Invalid, Required, TooLong},
    },
};

const AT: &str = "/spec/healthCheck";
/// Maximum length of the path of an HTTP check, in bytes.
const HTTP_PATH_LENGTH_MAX: usize = 2048;
/// Maximum length of the name of a gRPC service, in bytes.
const GRPC_SERVICE_LENGTH_MAX: usize = 255;
/// First line of a certificate in PEM (RFC 7468 §5.1).
const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// Last line of a certificate in PEM format.
const PEM_END: &str = "-----END CERTIFICATE-----";

pub(super) fn validate(spec: &ServiceSpec, check: &HealthCheck, found: &mut Vec<Violation>) {
    ranges(check, found);
    parts(check, found);
    ports(spec, check, found);
    if let Some(check) = &check.http {
        http(check, found);
    }
    if let Some(check) = &check.tls {
        tls(check, found);
    }
    if let Some(GrpcCheck { service: Some(service), tls: _ }) = &check.grpc {
        text("grpc/service", service, GRPC_SERVICE_LENGTH_MAX, found);
    }
    if let Some(UdpCheck { send, expect }) = &check.udp {
        text("udp/send", send, SEND_BYTES_MAX, found);
        if let Some(expect) = expect {
            text("udp/expect", expect, EXPECT_BYTES_MAX, found);
        }
    }
}

fn ranges(check: &HealthCheck, found: &mut Vec<Violation>) {
    let mut range = |field: &str, value: u32, min: u32, max: u32| {
        if value < min || value > max {
            let message = format!("must be between {min} and {max}, not {value}");
            found.push(Violation::new(format!("{AT}/{field}"), Invalid, message));
        }
    };
    range("intervalMs", check.interval_ms, 100, 3_600_000);
    range("timeoutMs", check.timeout_ms, 10, 60_000.min(check.interval_ms.max(10)));
    range("rise", u32::from(check.rise), 1, 100);
    range("fall", u32::from(check.fall), 1, 100);
    range("startDelayMs", check.start_delay_ms, 0, 3_600_000);
    range("panicThreshold", u32::from(check.panic_threshold), 0, 100);
    range("slowStartSeconds", check.slow_start_seconds, 0, 3600);
}

/// Checks that the blocks `http`, `tls`, `grpc` and `udp` are set only if the type of the check uses them, and
/// that a UDP check has `udp`.
fn parts(check: &HealthCheck, found: &mut Vec<Violation>) {
    use HealthCheckType::{Grpc, Http, Https, Udp};
    let is = |types: &[HealthCheckType]| types.contains(&check.check_type);
    let speaks_tls = is(&[Https]) || (is(&[Grpc]) && check.grpc.as_ref().is_some_and(|grpc| grpc.tls));
    for (field, is_set, is_used, when) in [
        ("http", check.http.is_some(), is(&[Http, Https]), "type is Http or Https"),
        ("tls", check.tls.is_some(), speaks_tls, "type is Https, or Grpc with grpc.tls"),
        ("grpc", check.grpc.is_some(), is(&[Grpc]), "type is Grpc"),
        ("udp", check.udp.is_some(), is(&[Udp]), "type is Udp"),
    ] {
        if is_set && !is_used {
            let message = format!("must be left out unless {when}");
            found.push(Violation::new(format!("{AT}/{field}"), Conflict, message));
        }
    }
    if is(&[Udp]) && check.udp.is_none() {
        let message = "must be present when type is Udp: an empty datagram gets no response";
        found.push(Violation::new(format!("{AT}/udp"), Required, message));
    }
}

/// Checks that a health check without its own `port` can connect to all Service ports: they must have the
/// transport protocol of the check.
fn ports(spec: &ServiceSpec, check: &HealthCheck, found: &mut Vec<Violation>) {
    if spec.is_external_name() {
        let message = "must be left out when type is ExternalName, which is only a DNS name";
        found.push(Violation::new(AT, Conflict, message));
        return;
    }
    if spec.ports.is_empty() {
        let message = "must be left out on a Service without ports: its endpoints are addresses only";
        found.push(Violation::new(AT, Conflict, message));
        return;
    }
    if check.port.is_some() {
        return;
    }
    let protocol = match check.check_type {
        HealthCheckType::Tcp | HealthCheckType::Http | HealthCheckType::Https | HealthCheckType::Grpc => {
            Protocol::Tcp
        }
        HealthCheckType::Udp => Protocol::Udp,
    };
    let is_other = |port: &&ServicePort| port.protocol != protocol;
    if let Some(port) = spec.ports.iter().find(is_other) {
        let message = format!(
            "must name a port: the check uses {}, and port {} of the Service is {}",
            protocol.as_str(),
            port.range(),
            port.protocol.as_str()
        );
        found.push(
            Violation::new(format!("{AT}/port"), Required, message)
                .hint("name a port at which every endpoint responds to the check"),
        );
    }
}

fn http(check: &HttpCheck, found: &mut Vec<Violation>) {
    let HttpCheck { method: _, path, host: _, expect_status, expect_body } = check;
    if !path.starts_with('/') || path.bytes().any(|c| !c.is_ascii_graphic()) {
        let message = "must start with `/` and hold printable ASCII without spaces";
        found.push(Violation::new(format!("{AT}/http/path"), Invalid, message));
    }
    if path.len() > HTTP_PATH_LENGTH_MAX {
        let message = format!("must be at most {HTTP_PATH_LENGTH_MAX} bytes");
        found.push(Violation::new(format!("{AT}/http/path"), TooLong, message));
    }
    if expect_status.iter().any(|code| !(100..=599).contains(code)) {
        let message = "must hold HTTP status codes between 100 and 599";
        found.push(Violation::new(format!("{AT}/http/expectStatus"), Invalid, message));
    }
    if let Some(body) = expect_body {
        text("http/expectBody", body, EXPECT_BYTES_MAX, found);
        if check.method == crate::kinds::health_check::HttpMethod::Head {
            let message = "must be left out when the method is HEAD, whose answers have no body";
            found.push(Violation::new(format!("{AT}/http/expectBody"), Conflict, message));
        }
    }
}

fn tls(check: &TlsCheck, found: &mut Vec<Violation>) {
    let TlsCheck { server_name: _, ca, insecure_skip_verify } = check;
    let Some(ca) = ca else { return };
    let at = format!("{AT}/tls/ca");
    if ca.len() > CA_BYTES_MAX {
        found.push(Violation::new(&at, TooLong, format!("must be at most {CA_BYTES_MAX} bytes")));
    }
    let (begin, end) = (ca.find(PEM_BEGIN), ca.rfind(PEM_END));
    if begin.zip(end).is_none_or(|(begin, end)| begin >= end) {
        let message = format!("must hold certificates in PEM, each between `{PEM_BEGIN}` and `{PEM_END}`");
        found.push(Violation::new(&at, Invalid, message));
    }
    if *insecure_skip_verify {
        let message = "must be left out when insecureSkipVerify is true, which accepts any certificate";
        found.push(Violation::new(&at, Conflict, message));
    }
}

fn text(field: &str, value: &str, bytes_max: usize, found: &mut Vec<Violation>) {
    if value.is_empty() {
        found.push(Violation::new(format!("{AT}/{field}"), Invalid, "must not be empty"));
    }
    if value.len() > bytes_max {
        let message = format!("must be at most {bytes_max} bytes, has {}", value.len());
        found.push(Violation::new(format!("{AT}/{field}"), TooLong, message));
    }
}
