//! Test network in which nginx, in workloads, is an ingress: clients reach nginx through one Service, and
//! nginx reaches the pages through another one.
//!
//! ```text
//!   client ─▶ a path into Service `ingress` ─▶ ingress-1 on node1 ─┐             ┌─▶ page-1 on node2
//!                                              ingress-2 on node2 ─┴─▶ Service ──┴─▶ page-2 on node3
//!                                                                      `pages`
//! ```
//! The path into Service `ingress` is a load balancer address, a node port or an external address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context, Result, bail};
use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::wait,
    network::client::at,
    processes::nginx::{Nginx, Serves},
};
use serde_json::json;

/// Host name of the site that nginx serves.
pub(crate) const SITE: &str = "www.site.example";
/// Number of requests after which both pages and both ingresses have replied, except with a probability below
/// 1e-11.
const REQUESTS: usize = 40;

/// Details of the request that a page received and returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Name of the page that replied.
    pub(crate) page: String,
    /// Host name that the page received in the request.
    pub(crate) host: String,
    /// User address as seen by the ingress.
    pub(crate) user: IpAddr,
    /// Source address of the request that the page received.
    pub(crate) by: IpAddr,
}

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    /// True if nodes send user addresses to the ingresses by the PROXY protocol.
    is_told: bool,
    /// nginx servers by workload name.
    servers: BTreeMap<String, Nginx>,
}

impl Stage {
    /// Starts three nodes in one mode, an address pool, two pages with their Service, and two ingress
    /// workloads. `is_told` enables the PROXY protocol, by which nginx receives the user's address.
    pub(crate) fn new(mode: &'static str, is_told: bool) -> Self {
        let cluster = Cluster::start(&Options { modes: vec![mode], ..Options::default() }).unwrap();
        let object = |kind: &str, spec| json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": "lan"}, "spec": spec});
        let pool = json!({"addresses": ["172.17.8.220-172.17.8.229", "fd00:8::220-fd00:8::229"]});
        cluster.apply_objects(&[object("AddressPool", pool), object("Advertisement", json!({}))]).unwrap();
        let mut stage = Self { cluster, is_told, servers: BTreeMap::new() };
        for (name, node, host) in [("page-1", "node2", 31), ("page-2", "node3", 32)] {
            stage.add(name, node, host, "pages", &Serves::Http(page(name)));
        }
        let pages = json!({"ipFamilyPolicy": "RequireDualStack", "selector": {"app": "pages"}, "ports": [{"port": 80}]});
        stage.cluster.add_service("pages", pages).unwrap();
        stage.add_ingress("ingress-1", "node1", 21);
        stage.add_ingress("ingress-2", "node2", 22);
        stage
    }

    /// Adds a workload with nginx as an ingress behind a node. `host` is the last octet of its address.
    pub(crate) fn add_ingress(&mut self, name: &str, node: &str, host: u8) {
        let pages = [0, 1].map(|family| at(self.cluster.cluster_ip("default/pages", family).unwrap(), 80));
        self.add(name, node, host, "ingress", &Serves::Http(ingress(pages, self.is_told)));
    }

    fn add(&mut self, name: &str, node: &str, host: u8, app: &str, serves: &Serves) {
        self.cluster.add_place(name, node, host).unwrap();
        let server = Nginx::start(self.cluster.place(name).unwrap(), name, serves).unwrap();
        self.servers.insert(name.to_owned(), server);
        let mut record = self.cluster.workload_record(name, app).unwrap();
        record["spec"]["ports"] = json!({"http": {"port": 80}});
        self.cluster.apply_objects(&[record]).unwrap();
    }

    /// Removes a workload in the order that a workload manager uses: first its API object, then its server.
    pub(crate) fn remove(&mut self, name: &str) {
        self.cluster.delete(&format!("namespaces/default/workloads/{name}")).unwrap();
        self.cluster.wait_converged().unwrap();
        self.servers.remove(name);
    }

    /// Requests the page of a site with `curl` from the outside client.
    pub(crate) fn ask(&self, site: &str, to: SocketAddr) -> Result<Page> {
        self.ask_times(site, to, 1)?.pop().context("curl said nothing")
    }

    /// Sends several requests for the site on separate connections and returns the replies.
    fn ask_times(&self, site: &str, to: SocketAddr, times: usize) -> Result<Vec<Page>> {
        // Resolves the name to this address for any port.
        let found = format!("{site}:{}:{}", to.port(), bracketed(to.ip()));
        let url = format!("http://{site}:{}/[1-{times}]", to.port());
        let words =
            ["-sS", "--fail", "--fail-early", "--noproxy", "*", "--max-time", "5", "-H", "Connection: close"];
        let words = [&words[..], &["--resolve", &found, &url]].concat();
        let pages =
            self.cluster.topology.client.run("curl", &words).with_context(|| format!("{site} at {to}"))?;
        pages.lines().map(Page::parse).collect()
    }

    /// Sends many requests, asserts that each returns a page of the site, and returns the pages.
    pub(crate) fn ask_often(&self, to: SocketAddr) -> Vec<Page> {
        let pages = self.ask_times(SITE, to, REQUESTS).unwrap();
        assert_eq!(pages.len(), REQUESTS, "at {to}");
        assert!(pages.iter().all(|page| page.host.starts_with(SITE)), "at {to}: {pages:?}");
        let who: BTreeSet<_> = pages.iter().map(|page| page.page.as_str()).collect();
        assert_eq!(who.into_iter().collect::<Vec<_>>(), ["page-1", "page-2"], "the inner Service spreads");
        pages
    }

    /// Returns the names of the ingress workloads that requested the pages. Asserts that each of them is in
    /// `of`.
    pub(crate) fn ingresses(&self, pages: &[Page], of: &[&'static str]) -> BTreeSet<&'static str> {
        let name = |page: &Page| {
            let is_it = |name: &&&str| self.cluster.topology.workloads[**name].addresses.contains(&page.by);
            *of.iter().find(is_it).unwrap_or_else(|| panic!("{page:?} came through none of {of:?}"))
        };
        pages.iter().map(name).collect()
    }

    /// Waits until the site is reachable at the load balancer addresses of Service `ingress`, and returns
    /// them, IPv4 first.
    pub(crate) fn wait_addresses(&self) -> Vec<IpAddr> {
        let service = self.cluster.service("default/ingress").unwrap();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        let addresses: Vec<IpAddr> =
            ingress.iter().map(|one| string(one, "/ip").unwrap().parse().unwrap()).collect();
        for address in &addresses {
            wait::until(&format!("the site at {address}"), || self.ask(SITE, at(*address, 80))).unwrap();
        }
        addresses
    }

    /// Waits until exactly one node, which is in `of`, announces the address and the client has resolved the
    /// address to it. Returns that node.
    pub(crate) fn wait_owner(&self, address: IpAddr, of: &[&str]) -> String {
        let owner = self.cluster.wait_owner(address, |owner| of.contains(&owner)).unwrap();
        self.cluster.wait_moved(address, &owner).unwrap();
        owner
    }
}

impl Page {
    fn parse(text: &str) -> Result<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        let ["page", page, "host", host, "user", user, "by", by] = words[..] else {
            bail!("no page: {text:?}");
        };
        Ok(Self { page: page.to_owned(), host: host.to_owned(), user: user.parse()?, by: by.parse()? })
    }
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

fn page(name: &str) -> String {
    format!(
        "server {{\n  listen 80;\n  listen [::]:80;\n  default_type text/plain;\n  \
         return 200 \"page {name} host $http_host user $http_x_real_ip by $remote_addr\\n\";\n}}"
    )
}

/// Renders the nginx configuration of an ingress that uses the two cluster IPs of the pages in turn. If one
/// fails, nginx returns the error and does not try the other one. `is_told` enables the PROXY protocol.
fn ingress(pages: [SocketAddr; 2], is_told: bool) -> String {
    let [v4, v6] = pages;
    let (how, users) = if is_told {
        (
            " proxy_protocol",
            "real_ip_header proxy_protocol;\nset_real_ip_from 0.0.0.0/0;\nset_real_ip_from ::/0;\n",
        )
    } else {
        ("", "")
    };
    format!(
        "{users}upstream pages {{\n  server {v4};\n  server {v6};\n}}\n\
         server {{\n  listen 80 default_server{how};\n  listen [::]:80 default_server{how};\n  return 404;\n}}\n\
         server {{\n  listen 80{how};\n  listen [::]:80{how};\n  server_name {SITE};\n  location / {{\n    \
         proxy_pass http://pages;\n    proxy_next_upstream off;\n    proxy_connect_timeout 3s;\n    \
         proxy_set_header Host $http_host;\n    proxy_set_header X-Real-IP $remote_addr;\n  }}\n}}"
    )
}
