//! Tests of forwarding with upstream servers on loopback addresses.

use hickory_proto::rr::RecordType;
use tokio::{net::UdpSocket, task::JoinSet};

use super::*;
use crate::message::{TtlLimits, answers_of};

/// Creates a client of upstream servers, in the form of `--upstream`.
fn forwarder(upstreams: &[String]) -> Forwarder {
    let options = CacheOptions {
        entries_max: 10,
        negative_entries_max: 10,
        ttl_limits: TtlLimits { positive: 60, negative: 60 },
        stale_max: Duration::from_secs(60),
    };
    let tls = tls_trust::Trust::authorities([]).unwrap().client().unwrap().with_no_client_auth();
    let upstreams = upstreams.iter().map(|text| UpstreamSetting::parse(text).unwrap()).collect();
    let setting = (upstreams, UpstreamPolicy::Sequential);
    Forwarder::new(setting, &Arc::new(tls), options, Arc::default()).unwrap()
}

fn key(name: &str) -> QuestionKey {
    QuestionKey::plain(&Name::from_ascii(name).unwrap(), RecordType::A)
}

/// Server that answers questions with one address without a time to live, except the first `ignored` ones.
struct TestServer {
    address: String,
    task: tokio::task::JoinHandle<()>,
}

impl TestServer {
    async fn start(ignored: usize) -> Self {
        Self::start_at("127.0.0.1:0", ignored).await
    }

    async fn start_at(address: &str, ignored: usize) -> Self {
        let socket = UdpSocket::bind(address).await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let task = tokio::spawn(async move {
            let mut buffer = [0; 512];
            for number in 0.. {
                let (size, client) = socket.recv_from(&mut buffer).await.unwrap();
                if number >= ignored {
                    // The client may have given up.
                    let _ = socket.send_to(&answer(&buffer[..size]), client).await;
                }
            }
        });
        Self { address, task }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the answer to a question for an address, without EDNS and a time to live.
fn answer(question: &[u8]) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let header = [question[0], question[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 9];
    [&header[..], &question[12..end], &record].concat()
}

/// Returns true if a question is answered with an address.
async fn is_answered(forwarder: &Forwarder, name: &str) -> bool {
    let reply = forwarder.ask(&key(name)).await;
    reply.is_ok_and(|reply| answers_of(&reply.served.bytes).is_some_and(|(_, answers)| answers.len() == 1))
}

/// Servers of a zone that do not respond take the places of their own zone only. Each question for them ends after 5 s, also those in
/// the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f164_servers_that_do_not_respond_delay_no_other_zone() {
    let (silent, good) = (TestServer::start(usize::MAX).await, TestServer::start(0).await);
    let forwarder = forwarder(&[format!("silent.example={}", silent.address), good.address.clone()]);
    let mut waiting = JoinSet::new();
    let start = Instant::now();
    for number in 0..LIMITS.asked + 200 {
        let forwarder = forwarder.clone();
        waiting.spawn(async move { forwarder.ask(&key(&format!("n{number}.silent.example."))).await });
    }
    while forwarder.0.lock().flights.iter().map(Flights::asked).sum::<usize>() < LIMITS.asked {
        sleep(Duration::from_millis(10)).await;
    }
    for number in 0..20 {
        assert!(is_answered(&forwarder, &format!("n{number}.example.")).await, "{number}");
    }
    let before_end = start.elapsed();
    while let Some(outcome) = waiting.join_next().await {
        assert!(matches!(outcome.unwrap(), Err(ForwardError::Unanswered(_))));
    }
    let waited = start.elapsed();
    assert!(before_end < QUESTION_TIME_MAX && waited >= QUESTION_TIME_MAX, "{before_end:?} {waited:?}");
    assert!(waited < 2 * QUESTION_TIME_MAX, "{waited:?}");
}

/// A question is sent again while there is time: here all three packets of the first attempt are lost. Two servers that do not respond
/// do not double the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f164_a_question_has_5_s_with_all_servers() {
    let (silent, lossy) = (TestServer::start(usize::MAX).await, TestServer::start(3).await);
    let lossy = forwarder(std::slice::from_ref(&lossy.address));
    let silent = forwarder(&[silent.address.clone(), silent.address.clone()]);
    let start = Instant::now();
    let (is_answered, failed) = tokio::join!(is_answered(&lossy, "a.example."), async {
        let outcome = silent.ask(&key("a.example.")).await;
        (outcome.is_err(), start.elapsed())
    });
    assert!(is_answered);
    let range = QUESTION_TIME_MAX..QUESTION_TIME_MAX + Duration::from_secs(2);
    assert!(failed.0 && range.contains(&failed.1), "{failed:?}");
}

/// Returns the state of the cached response to a name in an explanation.
fn cache_state(forwarder: &Forwarder, name: &str) -> serde_json::Value {
    let explanation = forwarder.explain(&Name::from_ascii(name).unwrap(), RecordType::A).unwrap();
    serde_json::to_value(explanation).unwrap()["cache"].clone()
}

/// A question that failed is not sent to the upstream servers again at once; other questions are. After the time, and an answer, nothing
/// is left of the failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f164_a_failure_is_cached_for_a_second() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    drop(socket);
    let forwarder = forwarder(std::slice::from_ref(&address));
    let asked = || forwarder.0.metrics.upstream_questions.get();
    let start = Instant::now();
    assert!(matches!(forwarder.ask(&key("a.example.")).await, Err(ForwardError::Unanswered(_))));
    let _server = TestServer::start_at(&address, 0).await;
    assert!(is_answered(&forwarder, "b.example.").await, "other names are not affected");
    let outcomes = (forwarder.ask(&key("a.example.")).await, forwarder.cached(&key("a.example.")));
    let state = cache_state(&forwarder, "a.example.");
    // On a busy machine, the time may be over.
    if start.elapsed() < Duration::from_secs(1) {
        assert!(matches!(outcomes, (Err(ForwardError::FailedBefore), Some(Err(ForwardError::FailedBefore)))));
        assert_eq!((&state["state"], &state["uses"]), (&"failed".into(), &2.into()));
        assert_eq!(state["code"], "SERVFAIL");
        assert_eq!(asked(), 2);
    }
    while !is_answered(&forwarder, "a.example.").await {
        assert!(start.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(cache_state(&forwarder, "a.example.")["state"], "missing");
}
