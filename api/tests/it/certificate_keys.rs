//! Private keys of Certificates over HTTP: gateways receive those of the Gateways that they serve.

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::secured;

/// Returns a Certificate and its private key.
fn certificate(namespace: &str, name: &str) -> (Value, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![format!("{name}.example.org")]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let spec = json!({ "certificate": pem, "privateKey": key.serialize_pem() });
    let metadata = json!({ "name": name, "namespace": namespace });
    (json!({ "kind": "Certificate", "metadata": metadata, "spec": spec }), key.serialize_pem())
}

fn gateway(namespace: &str, name: &str, certificate: &str) -> Value {
    let tls = json!({ "certificateRefs": [{ "name": certificate }] });
    let listener = json!({ "name": "https", "port": 443, "protocol": "HTTPS", "tls": tls });
    let metadata = json!({ "name": name, "namespace": namespace });
    json!({ "kind": "Gateway", "metadata": metadata, "spec": { "listeners": [listener] } })
}

/// The keys of listeners are in the list for gateways, limited to the Gateways of the query and to the namespaces of the
/// token. Other roles get none, and other responses do not contain them.
#[tokio::test]
async fn only_gateways_and_administrators_read_private_keys_of_their_listeners() {
    let secured = secured::start().await;
    let (www, www_key) = certificate("shop", "www");
    let (other, other_key) = certificate("other", "api");
    let (unused, unused_key) = certificate("shop", "unused");
    let objects =
        json!([www, other, unused, gateway("shop", "edge", "www"), gateway("other", "edge", "api")]);
    let written = secured.admin("POST", "/v1/apply", Some(objects)).await;
    let read = secured.admin("GET", "/v1/certificates", None).await;
    assert_eq!(read["items"].as_array().map(Vec::len), Some(3), "{read}");
    let history = secured.admin("GET", "/v1/history", None).await;
    for answer in [&written, &read, &history] {
        assert!(!answer.to_string().contains("PRIVATE KEY"), "{answer}");
    }
    let all = secured.token("all", json!({ "role": "gateway" })).await;
    let keys = |list: &Value| -> Vec<String> {
        let keys = list["keys"].as_array().unwrap().iter();
        keys.map(|key| key["privateKey"].as_str().unwrap().to_owned()).collect()
    };
    let (status, list) = secured.call(&all, "GET", "/v1/http/keys", None).await;
    assert_eq!((status, keys(&list)), (200, vec![other_key, www_key.clone()]), "{list}");
    assert!(list["revision"].as_u64().is_some_and(|revision| revision > 0), "{list}");
    assert!(!keys(&list).contains(&unused_key));
    let (_, list) = secured.call(&all, "GET", "/v1/http/keys?gateways=shop/edge,shop/none", None).await;
    assert_eq!(keys(&list), std::slice::from_ref(&www_key));
    assert_eq!(secured.call(&all, "GET", "/v1/http/keys?gateways=edge", None).await.0, 400);
    let one = secured.token("one", json!({ "role": "gateway", "namespaces": ["shop"] })).await;
    let (status, list) = secured.call(&one, "GET", "/v1/http/keys", None).await;
    assert_eq!((status, keys(&list)), (200, vec![www_key]));
    for role in ["viewer", "operator", "dns-server"] {
        let who = secured.token(role, json!({ "role": role })).await;
        let (status, answer) = secured.call(&who, "GET", "/v1/http/keys", None).await;
        assert_eq!(status, 403, "{role}: {answer}");
    }
    // The role may watch the state, and change nothing.
    assert_eq!(secured.call(&all, "GET", "/v1/services", None).await.0, 200);
    assert_eq!(secured.call(&all, "DELETE", "/v1/namespaces/shop/certificates/www", None).await.0, 403);
    assert_eq!(secured.call(&all, "GET", "/v1/dns/keys", None).await.0, 403);
    // Another certificate needs its private key.
    let (mut next, _) = certificate("shop", "www");
    next["spec"].as_object_mut().unwrap().remove("privateKey");
    let (status, answer) = secured.call(&secured.admin, "POST", "/v1/apply", Some(json!([next]))).await;
    assert_eq!(
        (status, &answer["errors"][0]["pointer"]),
        (422, &json!("/items/0/spec/privateKey")),
        "{answer}"
    );
}
