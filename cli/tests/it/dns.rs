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
