//! Tests of the requests and output of `dns query` and `explain dns` (F164).

use serde_json::{Value, json};

use crate::stub::{JSON, Stub, run, write_answer};

fn explanation() -> Value {
    let record = json!({
        "section": "answer", "name": "web.shop.svc.cluster.local", "ttl": 5, "type": "A", "data": "10.96.0.10",
        "reason": "cluster IP of Service `shop/web`",
    });
    let start = json!({
        "section": "authority", "name": "cluster.local", "ttl": 1, "type": "SOA", "data": "ns.dns.cluster.local",
        "reason": "start of authority",
    });
    json!({
        "name": "web.shop", "type": "A", "revision": 7, "namespace": "default",
        "reason": "search path of namespace `default`",
        "attempts": [
            { "name": "web.shop.default.svc.cluster.local", "result": "noName", "reason": "there is no Service `shop/default`", "records": [start] },
            { "name": "web.shop.svc.cluster.local", "result": "records", "reason": "the name exists", "records": [record] },
        ],
    })
}

/// `explain dns` prints each name of the search path with its result and the reasons; `dns query` the records only.
#[test]
fn f164_names_are_explained_and_queried() {
    let stub = Stub::new(|_, _, stream| write_answer(stream, "200 OK", JSON, &explanation().to_string()));
    let (code, out, err) = run(&stub.url, &["explain", "dns", "web.shop", "--from", "10.1.1.10"]);
    assert_eq!(code, 0, "{err}");
    let expected = "\
web.shop A
search path of namespace `default`

web.shop.default.svc.cluster.local: no name (NXDOMAIN)
  there is no Service `shop/default`
  NAME            TTL   TYPE   DATA                   REASON
  cluster.local   1     SOA    ns.dns.cluster.local   start of authority

web.shop.svc.cluster.local: records
  the name exists
  NAME                         TTL   TYPE   DATA         REASON
  web.shop.svc.cluster.local   5     A      10.96.0.10   cluster IP of Service `shop/web`
";
    assert_eq!(out, expected);
    let (code, out, _) = run(&stub.url, &["dns", "query", "web.shop.svc.cluster.local", "SRV", "-n", "shop"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "NAME                         TTL   TYPE   DATA\nweb.shop.svc.cluster.local   5     A      10.96.0.10\n"
    );
    // Without a name, `dns` is a Service.
    run(&stub.url, &["explain", "dns", "-n", "kube-system"]);
    let lines = stub.first_lines();
    assert_eq!(lines[0], "GET /v1/dns/explain?name=web.shop&from=10.1.1.10&namespace=default HTTP/1.1");
    assert_eq!(
        lines[1],
        "GET /v1/dns/explain?name=web.shop.svc.cluster.local&type=SRV&namespace=shop HTTP/1.1"
    );
    assert_eq!(lines[2], "GET /v1/namespaces/kube-system/services/dns/explain HTTP/1.1");
}

/// A name without records prints nothing to stdout and ends with code 3 and the reason.
#[test]
fn f164_a_name_without_records_is_a_negative_result() {
    let stub = Stub::new(|_, _, stream| {
        let mut answer = explanation();
        answer["attempts"].as_array_mut().unwrap().pop();
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let (code, out, err) = run(&stub.url, &["dns", "query", "web.shop.default.svc.cluster.local"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("there is no Service `shop/default`"), "{err}");
}

/// The reason is that of the name that exists, or of the first one for a name without a dot, although other names of the search path
/// are asked after it.
#[test]
fn f164_the_reason_is_that_of_the_telling_name() {
    for (result, name, told) in
        [("noRecords", "web.shop", "one"), ("noName", "web", "one"), ("noName", "web.shop", "other")]
    {
        let attempt = |name: &str, result: &str| json!({ "name": name, "result": result, "reason": "because", "records": [] });
        let mut answer = explanation();
        answer["name"] = name.into();
        answer["attempts"] = json!([attempt("one", result), attempt("other", "forwarded")]);
        let stub = Stub::new(move |_, _, stream| write_answer(stream, "200 OK", JSON, &answer.to_string()));
        let (code, out, err) = run(&stub.url, &["dns", "query", name, "AAAA", "-n", "shop"]);
        assert_eq!((code, out.as_str()), (3, ""));
        assert!(err.contains(&format!("{told}: because")), "{name}: {err}");
    }
}

/// `explain dns --server` asks the DNS server instead of the control server, and prints the zones that the client sees, the
/// upstream servers and the cached response.
#[test]
fn f164_a_dns_server_explains_its_upstream_servers_and_its_cache() {
    let mut explanation = explanation();
    let attempt =
        |name: &str| json!({ "name": name, "result": "forwarded", "reason": "because", "records": [] });
    explanation["attempts"] =
        ["a", "d", "b", "c"].map(|name| attempt(&format!("{name}.example.com"))).to_vec().into();
    let servers = json!([
        { "server": "192.0.2.1:53", "state": "ok", "responseMicros": 1500 },
        { "server": "192.0.2.2:53", "state": "failing", "originalSpellingSecs": 250 },
    ]);
    let forwarded = |cache: Value| {
        json!({ "result": "forwarded", "forwarded": {
            "name": "a.example.com", "zone": ".", "policy": "random", "servers": servers, "cache": cache } })
    };
    let fresh = json!({ "state": "fresh", "remainingSecs": 23, "uses": 4, "code": "NOERROR", "records": ["a.example.com. 23 IN A 192.0.2.7"] });
    let stale = json!({ "state": "stale", "usableSecs": 600, "code": "NXDOMAIN", "records": [] });
    let failed = json!({ "state": "failed", "remainingMillis": 1800, "uses": 3, "code": "REFUSED" });
    let answer = json!({
        "view": "all zones: 10.1.1.10 is in --client-network 10.0.0.0/8", "explanation": explanation,
        "handling": [forwarded(fresh), forwarded(failed), forwarded(stale), { "result": "refused", "reason": "no server" }],
    });
    let stub = Stub::new(move |_, _, stream| write_answer(stream, "200 OK", JSON, &answer.to_string()));
    let server = stub.url.strip_prefix("http://").unwrap();
    let arguments = ["explain", "dns", "web.shop", "--from", "10.1.1.10", "--server", server];
    let (code, out, err) = run("http://127.0.0.1:1", &arguments);
    assert_eq!(code, 0, "{err}");
    let expected = "\
web.shop A
search path of namespace `default`
zones: all zones: 10.1.1.10 is in --client-network 10.0.0.0/8

a.example.com: asked of the upstream servers
  because
  a.example.com: servers for all names, policy random
  SERVER         STATE     RESPONSE TIME
  192.0.2.1:53   ok        1.5 ms
  192.0.2.2:53   failing   <not asked yet>
  192.0.2.2:53 changes the spelling of names over UDP and has no TCP: names are sent in the original spelling for 250 s
  cached response: NOERROR for 23 s, used 4 times
    a.example.com. 23 IN A 192.0.2.7

d.example.com: asked of the upstream servers
  because
  a.example.com: servers for all names, policy random
  SERVER         STATE     RESPONSE TIME
  192.0.2.1:53   ok        1.5 ms
  192.0.2.2:53   failing   <not asked yet>
  192.0.2.2:53 changes the spelling of names over UDP and has no TCP: names are sent in the original spelling for 250 s
  cached response: none; the servers failed (REFUSED) and are asked again in 1.8 s, used 3 times

b.example.com: asked of the upstream servers
  because
  a.example.com: servers for all names, policy random
  SERVER         STATE     RESPONSE TIME
  192.0.2.1:53   ok        1.5 ms
  192.0.2.2:53   failing   <not asked yet>
  192.0.2.2:53 changes the spelling of names over UDP and has no TCP: names are sent in the original spelling for 250 s
  cached response: NXDOMAIN, expired; used for 600 s if the servers fail

c.example.com: refused (REFUSED)
  no server
";
    assert_eq!(out, expected);
    let lines = stub.first_lines();
    assert_eq!(lines, ["GET /explain?name=web.shop&from=10.1.1.10&namespace=default HTTP/1.1"]);
    let (code, _, err) = run(&stub.url, &["explain", "dns", "web", "--server", "127.0.0.1:1"]);
    assert_eq!(code, 4);
    assert!(err.contains("127.0.0.1:1 did not respond"), "{err}");
}

fn names(seconds: u64, names: &[(&str, u64, u64, u64)]) -> String {
    let total = |index: fn(&(&str, u64, u64, u64)) -> u64| names.iter().map(index).sum::<u64>();
    let list: Vec<_> = names
        .iter()
        .map(|(name, questions, missing, failed)| {
            json!({ "name": name, "questions": questions, "missing": missing, "failed": failed, "uncertain": missing / 100 })
        })
        .collect();
    let total =
        json!({ "questions": total(|it| it.1), "missing": total(|it| it.2), "failed": total(|it| it.3) });
    json!({ "seconds": seconds, "total": total, "names": list }).to_string()
}

/// `dns top` adds the numbers of several DNS servers, and sorts names by questions or by failures. A server that does not
/// respond is named.
#[test]
fn f164_the_busiest_names_of_all_dns_servers_are_shown() {
    let one = names(
        100,
        &[("web.shop.svc.cluster.local", 500, 0, 0), ("www.example.com.svc.cluster.local", 300, 300, 0)],
    );
    let two = names(60, &[("web.shop.svc.cluster.local", 60, 0, 0), ("db.example.com", 12, 0, 12)]);
    let stubs = [one, two].map(|body| Stub::fixed("200 OK", JSON, body));
    let addresses = stubs.each_ref().map(|stub| stub.url.trim_start_matches("http://").to_owned());
    let servers = addresses.join(",");
    let (code, out, err) = run("http://127.0.0.1:9", &["dns", "top", "--server", &servers]);
    assert_eq!(code, 0, "{err}");
    let (mut first, mut second) = (addresses[0].clone(), addresses[1].clone());
    if first.parse::<std::net::SocketAddr>().unwrap() > second.parse().unwrap() {
        std::mem::swap(&mut first, &mut second);
    }
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["SERVER", "QUESTIONS/S", "NO", "NAME", "FAILED", "QUESTIONS", "IN"]);
    assert_eq!([lines[1][0], lines[2][0]], [&*first, &*second]);
    assert_eq!(lines[4], ["NAME", "QUESTIONS/S", "NO", "NAME", "FAILED", "QUESTIONS", "SERVERS"]);
    assert_eq!(lines[5], ["web.shop.svc.cluster.local", "6.0", "0", "0", "560", "2"]);
    assert_eq!(lines[6], ["www.example.com.svc.cluster.local", "~3.0", "300", "0", "~300", "1"]);
    assert_eq!(lines[7], ["db.example.com", "0.2", "0", "12", "12", "1"]);
    assert_eq!(stubs[0].first_lines(), ["GET /names HTTP/1.1"]);

    let words = ["dns", "top", "--server", &servers, "--failures", "--limit", "1", "-o", "json"];
    let (code, out, _) = run("http://127.0.0.1:9", &words);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, document["names"].as_array().unwrap().len()), (0, 1));
    assert_eq!(document["names"][0]["name"], "www.example.com.svc.cluster.local");
    assert_eq!(document["servers"].as_array().unwrap().len(), 2);

    let partly = format!("{},127.0.0.1:9", addresses[0]);
    let (code, out, err) = run("http://127.0.0.1:9", &["dns", "top", "--server", &partly]);
    assert_eq!((code, out.contains("web.shop")), (3, true));
    assert!(err.contains("127.0.0.1:9 did not respond"), "{err}");
    let (code, _, _) = run("http://127.0.0.1:9", &["dns", "top", "--server", "127.0.0.1:9"]);
    assert_eq!(code, 4);
}

/// `dns servers` lists the servers and their problems, and ends with code 3 if there is one.
#[test]
fn dns_servers_are_listed_with_their_problems() {
    let server = |name: &str, state: &str, problems: Value| {
        json!({ "name": name, "reportedAt": "2026-02-13T16:26:40Z", "problems": problems, "report": {
            "version": "0.2.0", "connected": true, "revision": 42, "zones": ["cluster.local", "example.org"],
            "upstreams": [{ "server": "192.0.2.1:53", "state": state }], "cache": { "positive": 7, "negative": 1, "evicted": 0 },
            "names": { "seconds": 60, "total": { "questions": 120, "missing": 6, "failed": 0 }, "names": [] } } })
    };
    let good = server("node-1", "ok", json!([]));
    let stub = Stub::fixed("200 OK", JSON, json!({ "servers": [good] }).to_string());
    let (code, out, err) = run(&stub.url, &["dns", "servers"]);
    assert_eq!(code, 0, "{err}");
    let table = "\
NAME     VERSION   REVISION   ZONES   UPSTREAMS   QUESTIONS/S   NO NAME   FAILED   CACHED   PROBLEMS
node-1   0.2.0     42         2       1/1         2.0           6         0        8        0
";
    assert_eq!(out, table);
    assert_eq!(stub.first_lines(), ["GET /v1/dns/servers HTTP/1.1"]);

    let bad = server("node-2", "failing", json!(["upstream server 192.0.2.1:53 does not respond"]));
    let stub = Stub::fixed("200 OK", JSON, json!({ "servers": [bad] }).to_string());
    let (code, out, _) = run(&stub.url, &["dns", "servers"]);
    assert_eq!(code, 3);
    assert!(
        out.contains(" 0/1 ") && out.ends_with("\nnode-2: upstream server 192.0.2.1:53 does not respond\n"),
        "{out}"
    );

    let stub = Stub::fixed("200 OK", JSON, json!({ "servers": [] }).to_string());
    let (code, out, err) = run(&stub.url, &["dns", "servers"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("no DNS server has reported"), "{err}");
}
