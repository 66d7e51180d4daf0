//! Texts printed below the options in `--help`: examples that can be pasted, exit codes and background.

pub(super) const AFTER_HELP: &str = "\
First steps:
  tidegate status                       health of the cluster and its problems
  tidegate apply -f web.yaml            create or update the objects of a file
  tidegate get services                 list Services
  tidegate describe service web         details of a Service, its problems and their remedies
  tidegate get endpoints web -o wide    list the endpoints of a Service
  tidegate traffic web                  traffic of a Service by endpoint
  tidegate top services                 busiest Services
  tidegate explain web                  each step from virtual addresses to endpoints
  tidegate wait svc/web --for=ready     wait until a Service is ready
  tidegate get addresses                load balancer addresses and their announcing nodes
  tidegate bgp peers                    BGP sessions
  tidegate history                      changes, with authors and reasons

Environment:
  TIDEGATE_NAMESPACE                    namespace of commands that act on one namespace, as -n
  TIDEGATE_TOKEN                        token itself, instead of --token-file
  NO_COLOR                              no colors, if not empty

Exit codes:
  0  success
  1  the server rejected the request, or the command failed; the reason is on stderr
  2  invalid command line
  3  problems (status, doctor), changes (plan), harm (what-if), or a state to confirm (confirm)
  4  no response: the server is unreachable or timed out
  `diff` has the codes of diff(1), `status --check` those of monitoring plugins";

pub(super) const GET_HELP: &str = "\
Kinds:
  services (svc)       stable virtual addresses in front of endpoints
  endpointsets (eps)   manually configured endpoints
  workloads (wl)       anything with an address, selected by a Service's selector
  nodes (no)           machines that run an agent
  addresspools (pool)  ranges of load balancer addresses, and who may use them
  advertisements (adv) which nodes announce the addresses of which pools
  bgppeers (peer)      routers that nodes have BGP sessions with
  bfdprofiles (bfd)    BFD settings for paths to routers
  dnszones (zone)      DNS zones with static records and host names of Services
  certificates (cert)  certificates for TLS at listeners of Gateways
  gateways (gw)        listeners at which gateways accept HTTP requests
  httproutes (route)   rules that select a Service for HTTP requests; also `ingress`
  tlsroutes (tls)      services for TLS connections by their server name
  workloadnetworks (wn) addresses for workloads, and the way of packets between nodes
  networkpolicies (netpol) connections that selected workloads accept and make
  addresses (addr)     addresses in use with their owner and announcing node; read-only
  blocks (blk)         parts of workload networks with their nodes; read-only
  attachments (att)    interfaces of workloads on nodes; read-only
  endpoints (ep)       endpoints computed by the server for each Service; read-only
  all                  every writable kind, that is, all except those that are read-only

Examples:
  tidegate get svc                      Services of the namespace `default`
  tidegate get svc,eps -A               two kinds in all namespaces
  tidegate get svc web -o yaml          one complete Service
  tidegate get wl -l 'app=web,tier in (a,b)'
  tidegate get ep web -o wide           endpoints with ready, serving and terminating
  tidegate get addr                     announcing node of each address, and since when
  tidegate get addr 2001:db8::1 -o wide one address with candidates, counters and conflicts
  tidegate get nodes -w                 print the table, then a row for each change
  tidegate get svc --sort-by .spec.clusterIP --show-labels
  tidegate get svc --no-headers -o custom-columns=NAME:.metadata.name,IP:.spec.clusterIPs[*]
  tidegate get svc web -o jsonpath='{.spec.ports[0].port}'
  tidegate get svc -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}'";

pub(super) const DESCRIBE_HELP: &str = "\
Examples:
  tidegate describe svc web             conditions with reasons and hints, endpoints, lagging nodes
  tidegate describe pool lan            ranges, free capacity and holders of a pool
  tidegate describe peer tor-1          nodes with a session to the router, and their local settings
  tidegate describe addr 192.0.2.7      announcing node, candidates, and why other nodes are excluded
  tidegate describe node/node-1         detected features and sync state of the agent";

pub(super) const APPLY_HELP: &str = "\
All objects are applied as one revision, or none is. Applying the same file twice changes nothing.
The server validates the files and reports all errors at once. A file given by URL has at most 16 MiB.

Examples:
  tidegate apply -f web.yaml            one file: YAML documents or JSON
  tidegate apply -f conf.d/             all .yaml, .yml and .json files of a directory, in name order
  render | tidegate apply -f -          from stdin
  tidegate apply -f https://example.org/web.yaml
  tidegate apply -f web.yaml --dry-run  preview only
  tidegate apply -f web.yaml --wait --timeout 2m
                                        return when every node has the change in its kernel
  tidegate apply -f service.yaml --from kubernetes
                                        convert a manifest of Kubernetes
  tidegate apply -f conf.d/ --apply-set shop --prune
                                        also delete objects that earlier applies of the set contained
  tidegate apply -f pool.yaml --evict   shrink a pool although Services hold some of its addresses
  tidegate apply --plan 00d1f7c0a4be25c9
                                        apply a saved plan, if its objects have not changed since";

pub(super) const PLAN_HELP: &str = "\
Changes nothing. Lines with + would be added and lines with - removed: first objects, then load balancer
addresses and their announcing nodes, then for each node its kernel rules and announcements.
Exit code: 0 without changes, 3 with changes, 1 if no plan could be made.

Examples:
  tidegate plan -f web.yaml             preview an apply; the last line contains the plan id
  tidegate plan -f conf.d/ --apply-set shop --prune
                                        include the objects that would be pruned
  tidegate plan -f web.yaml -o json     machine-readable";

pub(super) const DIFF_HELP: &str = "\
Changes nothing and compares objects only; use `tidegate plan` to include the effect on nodes.
Exit code: 0 without differences, 1 with differences, 2 or higher on errors.

Examples:
  tidegate diff -f web.yaml             compare before an apply
  tidegate diff -f conf.d/ && echo same";

pub(super) const DELETE_HELP: &str = "\
Deletes without asking for confirmation. Addresses and ports of the objects are released. With -l and --all, the
objects are listed and then deleted by one write, which the server rejects as a whole if it would remove too many
addresses or endpoints (--confirm allows it).

Examples:
  tidegate delete svc web api           two Services
  tidegate delete svc/web eps/web-a     objects of several kinds
  tidegate delete svc,eps -l app=web    everything with a label
  tidegate delete wl --all -n shop --dry-run
  tidegate delete -f web.yaml           the objects of a file, in reverse order
  tidegate delete pool lan --evict      a pool although Services hold its addresses";

pub(super) const STATUS_HELP: &str = "\
Exit codes:
  0  every node is up to date and every Service is ready
  3  there are problems; each is printed with its reason and remedy
  others as for every command, so that monitoring can tell problems from failed checks

With --check, the codes are those of monitoring plugins: 0 OK, 1 WARNING (problems, users can connect),
2 CRITICAL (users cannot connect), 3 UNKNOWN (no result). The line on stdout ends with performance data.

Examples:
  tidegate status -w                    print again on each change
  tidegate status --check               one line for Nagios, Icinga and others";

pub(super) const TRAFFIC_HELP: &str = "\
Counters start when a node programs the endpoint and are reported about every 10 s (AGE). `-` marks values
that the node's proxy mode does not count. CONN/S and BYTES/S are averages over the last two reports of
the node. FAILED counts failed connections of the userspace proxy: the endpoint refused, did not answer,
or reset.

Examples:
  tidegate traffic web                  connections, packets and bytes of Service web
  tidegate traffic web -n shop -o json  with totals per node";

pub(super) const DOCTOR_HELP: &str = "\
The agents run the checks at the time of the request: prerequisites of the proxy mode, foreign rules and
marks, table sizes, interfering programs, and the clock. Without --fix nothing is changed. Each finding
explains its effect and its fix. Exit code: 3 if something is broken, 1 if a node does not respond or a
fix failed.

Examples:
  tidegate doctor                       problems on all nodes
  tidegate doctor node/node-1 --all     all checks of one node
  tidegate doctor --fix                 fix problems that are safe to fix, after confirmation";

pub(super) const TOP_HELP: &str = "\
Examples:
  tidegate top services                 most new connections first
  tidegate top nodes                    slowest nodes, and why";

pub(super) const TOP_SERVICES_HELP: &str = "\
Rates are averages over the last two reports of each node, about 10 s apart.

Examples:
  tidegate top services --sort byte-rate -n shop --limit 5
  tidegate top services --watch         print again on each change";

pub(super) const TOP_NODES_HELP: &str = "\
Times are measured from the commit of a change until the node reports it as verified by read-back, over
the last 256 changes.

Examples:
  tidegate top nodes -o json";

pub(super) const WAIT_HELP: &str = "\
Polls until the goal is reached, and prints the reason on stderr whenever it changes. Exit code: 0 if the
goal is reached, 1 if --at-most expires.

Goals:
  verified   every node has the object in its kernel, confirmed by read-back (Services and nodes); without an
             object: every connected node has all changes committed before the command started
  ready, announced, condition=TYPE[=STATUS]
             the condition, as listed by `describe`, has the status
  deleted    the object does not exist

Examples:
  tidegate apply -f web.yaml && tidegate wait
  tidegate wait svc/web --for=ready --at-most=2m
  tidegate wait svc/web --for=condition=EndpointsAvailable=False
  tidegate delete svc web && tidegate wait svc/web --for=deleted";

pub(super) const WHAT_IF_HELP: &str = "\
Changes nothing. Exit code: 3 if a Service or an address would become unavailable, otherwise 0.

Examples:
  tidegate what-if                      Services and addresses that depend on a single node
  tidegate what-if --fail node/rack1-a  before maintenance of a machine
  tidegate what-if --fail a,b -o json";
pub(super) const ENV_HELP: &str = "\
The variables are those that kubelet sets in containers: WEB_SERVICE_HOST, WEB_SERVICE_PORT and, for links,
WEB_PORT_80_TCP_ADDR and others. They are fixed when a program starts; Services created later are missing.

Examples:
  tidegate env -n shop > shop.env && docker run --env-file shop.env IMAGE
  tidegate env web db --no-links        host and ports of two Services
  env $(tidegate env web) ./client      start a program with the variables";
pub(super) const HEALTH_HELP: &str = "\
An endpoint is checked by its own node. An endpoint without a node is checked by up to three nodes, which
decide by majority. Unknown: none of them reports, and the last result stays in effect. SHARE is the
fraction of the weight in effect; 0 while out of service.

Examples:
  tidegate health web           health of each endpoint of Service web, since when, and checking nodes
  tidegate health web -o wide   with the result of each node
  tidegate health --guard       unhealthy endpoints kept in service because too many failed at once
  tidegate health --confirm     confirm these failures: take the endpoints out of service";

pub(super) const WATCH_HELP: &str = "\
Sends all objects as ADDED first, then each change in order. After a lost connection the watch reports it
on stderr and resumes at the last position; objects of a partially received revision are sent again. Stop
with Ctrl-C.

Examples:
  tidegate watch                        all kinds
  tidegate watch svc eps -n shop        two kinds in one namespace
  tidegate watch -o json                one event per line, with positions to resume from
  tidegate watch --resume 1763712000-42  later changes only; fails if that position is too old";

pub(super) const ADDRESSES_HELP: &str = "\
`tidegate get addresses` lists the addresses with their present announcing nodes.

Examples:
  tidegate addresses events             recent changes of the announcing nodes";

pub(super) const ADDRESSES_EVENTS_HELP: &str = "\
The agents report when and why they began or ceased to announce an address by ARP or NDP. The server keeps the
last 1000 events of each node in memory.

Examples:
  tidegate addresses events --address 192.0.2.7
                                        which nodes announced this address, and why it moved
  tidegate addresses events --node node-1
                                        addresses that moved to or from a node
  tidegate addresses events --last 10 -o json";

pub(super) const BGP_HELP: &str = "\
The data is reported by the agents within seconds of an event. Tidegate cannot see how a router uses the
advertised routes; check on the router.

Examples:
  tidegate bgp peers                    sessions, and why some are not established
  tidegate bgp routes --address 192.0.2.7
                                        routers that received this address, and from which nodes
  tidegate bgp events                   recent session changes";

pub(super) const BGP_PEERS_HELP: &str = "\
SINCE is the time in the current state, PREFIXES the number of prefixes advertised to the router. Hints
for sessions that are not established follow the table. States are those of RFC 4271; `Unknown` means that
the node's agent does not report.

Examples:
  tidegate bgp peers --state active     sessions that wait for the router
  tidegate bgp peers --node node-1 -o wide
                                        with timers, counters and the last errors of both sides
  tidegate bgp peers --peer tor-1 -o json";

pub(super) const BGP_ROUTES_HELP: &str = "\
States:
  Announced  advertised to the router with the attributes in DETAILS
  Waiting    to be advertised; DETAILS names the missing precondition, such as a session
  Withheld   not advertised to any router; DETAILS gives the reason, such as no ready endpoints
  Unknown    the node's agent does not report

Examples:
  tidegate bgp routes --peer tor-1      all routes of this router
  tidegate bgp routes --prefix 192.0.2.0/24 -o wide
                                        prefixes of a pool and the addresses they cover
  tidegate bgp routes --node node-1 -o yaml";

pub(super) const BGP_EVENTS_HELP: &str = "\
The server keeps the last 500 events of each node in memory.

Examples:
  tidegate bgp events --last 10         the ten newest events
  tidegate bgp events --peer tor-1      events of one router on all nodes
  tidegate bgp events --node node-1 -o json";

pub(super) const HISTORY_HELP: &str = "\
+ marks added, ~ changed and - removed objects. The author's name is supplied by the client; the address is the
one seen by the server. Automatic changes have the author `tidegate`.

Examples:
  tidegate history                      latest changes
  tidegate history -w                   and each later one, also as `tidegate events -w`
  tidegate history svc/web              changes of one object
  tidegate history 42                   one change: every field, and when each node applied it
  tidegate history 42 --rules           with its effect on the kernel rules of each node
  tidegate history 42 -o yaml           with all objects before and after";

pub(super) const ROLLBACK_HELP: &str = "\
Restores or removes every object that a user wrote after the revision, in one change that can itself be
rolled back. Services get their previous addresses and node ports if these are free. Automatic changes of
the server and of agents are not undone.

Without a revision, your last change is undone: the command shows the change and its effect and asks before
it writes. Changes of others and later changes are kept; the request fails if somebody changed one of the
objects since.

Examples:
  tidegate rollback                     undo your last change
  tidegate rollback 41 --dry-run        preview
  tidegate rollback 41 -m 'the new ports were wrong'
  tidegate rollback 42 --only           undo change 42 only, keeping later changes";

pub(super) const AUDIT_HELP: &str = "\
The server keeps the last 10,000 requests that changed something and the last 2,000 that did not, for up
to 400 days and across restarts.

Examples:
  tidegate audit                        latest requests with author and outcome
  tidegate audit svc/web -n shop        only those about Service shop/web
  tidegate audit --author ann@laptop --decision refused
  tidegate audit --last 500 -o json";

pub(super) const BACKUP_HELP: &str = "\
The file is a consistent snapshot with a checksum; verify it with `tidegate store verify`. It contains all
secrets of the cluster unencrypted. Observed node state and the audit log are not included.

Examples:
  tidegate backup -o tidegate.backup              objects, keys, tokens and roles
  tidegate backup -o tidegate.backup --history    also the history of writes";

pub(super) const STORE_HELP: &str = "\
Stop all servers that use the store first; only `verify` works without a store.

Examples:
  tidegate store verify tidegate.backup
  tidegate store restore --from tidegate.backup --store sqlite:/var/lib/tidegate/tidegate.sqlite --dry-run
  tidegate store migrate --from sqlite:old.sqlite --to sqlite:new.sqlite";

pub(super) const DEMO_HELP: &str = "\
Starts a control server, three nodes with agents, backends and clients in network namespaces, sends real
requests, and shows who answers while a backend, a node and the control server fail. The status page is at
http://127.0.0.1:7440/ until Ctrl-C, which removes everything. Needs root and the package tidegate-lab; addresses,
routes and rules of this machine do not change.

Examples:
  sudo tidegate demo                    stays up until Ctrl-C
  sudo tidegate demo --once             ends by itself; the exit code is 0 if everything worked
  sudo tidegate demo --nodes 5";

pub(super) const CONFIRM_HELP: &str = "\
If the server's database is empty, belongs to another cluster or is an old backup, a node that would lose
most of its addresses or endpoints keeps its current state and reports it (condition Converged, reason
StateHeld). Restore the right database, and traffic is not affected. If the loss is intended, confirm it
for the epoch shown. Exit code: 3 if a state is pending confirmation.

Examples:
  tidegate confirm node/node-1          show the rejected state and the command that confirms it
  tidegate confirm node/node-1 --epoch 1767225600";

pub(super) const MOVE_HELP: &str = "\
Makes the node the first candidate of the address: it starts announcing the address at once, and the
previous owner stops. Fails with the reason if the node is not a candidate. The address stays on the node
until the node fails or is drained, or the address is moved again.

Examples:
  tidegate get addr 192.0.2.7 -o wide   owner and candidates of the address
  tidegate move 192.0.2.7 node-2        before maintenance of the current owner
  tidegate move 2001:db8::7 node-2 --dry-run";

pub(super) const REBALANCE_HELP: &str = "\
Failures move addresses to other nodes, and the return of a node does not move them back. This command moves
as few addresses as necessary, one at a time: the next one moves when the new node announces the previous
one. New connections are not affected, but a move resets those that are established through the previous
owner, so addresses are never spread automatically. Addresses that their owner does not announce are not moved. The command
stops at the first move that fails; repeat it to continue.

Examples:
  tidegate rebalance --dry-run          the moves, and the number of addresses of each node before and after
  tidegate rebalance -m 'node-2 is back'";

pub(super) const DRAIN_HELP: &str = "\
New connections go to other endpoints at once, or are refused if there are none. Established TCP
connections may finish, whatever the removal policy of the Service. Each node terminates the rest at the
deadline, even if the server is down then. UDP flows move at once. --wait returns when every node reports
zero connections; exit code 1 means that --wait-timeout expired first.

Examples:
  tidegate drain endpoint 10.1.13.2 --deadline 5m --wait
  tidegate drain workload web-1 -n shop --reason upgrade
  tidegate drain node node-2 --deadline 2h --wait --wait-timeout 3h
  tidegate drain service web --dry-run";

pub(super) const MAINTENANCE_HELP: &str = "\
The endpoint is not used at all, not even as a last resort. The removal policy of the Service
(spec.removalPolicy) decides about established connections; by default they continue.

Examples:
  tidegate maintenance endpoint 10.1.13.2 --reason broken-disk
  tidegate maintenance node node-2 --wait --wait-timeout 10m";

pub(super) const UNDRAIN_HELP: &str = "\
Only the named object is changed: an endpoint on a draining Node keeps draining.

Examples:
  tidegate undrain endpoint 10.1.13.2
  tidegate undrain node node-2";

pub(super) const IMPORT_HELP: &str = "\
Supported formats, which may be mixed in any order:
  kubernetes   Service, Endpoints, EndpointSlice, Node
  metallb      IPAddressPool, L2Advertisement, BGPPeer, BGPAdvertisement, BFDProfile, Community; also the deprecated
               AddressPool, and the legacy ConfigMap or the configuration embedded in it
  kube-proxy   KubeProxyConfiguration, also in the ConfigMap kube-proxy; printed as a settings file for agents
  ipvsadm      output of `ipvsadm -S -n`
  keepalived   keepalived.conf: virtual servers, their checks, and VRRP addresses

A report on stderr lists each setting as mapped, approximated (with the difference) or ignored (with the
reason). Passwords are converted and appear in the output; Secrets are not read.

Examples:
  tidegate import metallb.yaml > pools.yaml
  tidegate import metallb.yaml --apply --dry-run
  kubectl get configmap -n kube-system kube-proxy -o yaml | tidegate import -
  kubectl get services,endpointslices -A -o yaml | tidegate import -
  ipvsadm -S -n | tidegate import - --from ipvsadm
  tidegate import /etc/keepalived/keepalived.conf";

pub(super) const EXPORT_HELP: &str = "\
Services and EndpointSets are exported as Kubernetes Services and EndpointSlices; pools, advertisements,
peers and BFD profiles as MetalLB resources. A report lists each setting, in the format of `tidegate
import`, which can read the output. Objects whose export would enable more than before, such as a disabled
Service, are omitted.

Examples:
  tidegate export --format kubernetes -A > services.yaml
  tidegate export --format metallb --report report.txt > metallb.yaml
  tidegate export --format metallb -f pools.yaml";

pub(super) const COMPLETIONS_HELP: &str = "\
The script completes subcommands, options and kinds, and names, nodes, addresses and namespaces of the
control server, whose response it awaits for at most 2 s.

Examples:
  source <(tidegate completions bash)          in ~/.bashrc
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"";

pub(super) const TOKEN_HELP: &str = "\
If the server requires authentication, every command needs a token. The server logs the file name of the
first token when it starts.

Examples:
  tidegate token create ci --role operator -n shop --expires-in 90d > ci.token
  tidegate token list
  tidegate token revoke ci";

pub(super) const TOKEN_CREATE_HELP: &str = "\
The token is printed to stdout, everything else to stderr. You cannot grant permissions that you do not
have.

Examples:
  tidegate token create grafana --role viewer > grafana.token
  tidegate token create shop --role operator -n shop --pool web --endpoint-range 10.1.0.0/16 > shop.token";

pub(super) const ROLE_HELP: &str = "\
Built-in roles are viewer, operator and admin; `role list` shows those of programs too. The role agent belongs to
agents, which authenticate with certificates.

Examples:
  tidegate role list
  tidegate role apply deployer -f deployer.yaml
  tidegate role delete deployer";

pub(super) const ROLE_APPLY_HELP: &str = "\
The file contains a list of rules; a request is allowed if any rule allows it:
  rules:
  - verbs: [get, list, create, update, plan]
    kinds: [Service, EndpointSet]
    namespaces: [shop]

Examples:
  tidegate role apply deployer -f deployer.yaml";

pub(super) const CAN_I_HELP: &str = "\
Exit code: 0 for yes, 1 for no.

Examples:
  tidegate can-i update service -n shop
  tidegate can-i create Token";

pub(super) const JOIN_TOKEN_HELP: &str = "\
The token is printed to stdout. It also contains the hash of the CA that must have issued the server
certificate.

Examples:
  tidegate node join-token node-1 > node-1.join
  tidegate node join-token edge-1 --label role=edge > edge-1.join";

pub(super) const NODE_ACCEPT_HELP: &str = "\
An agent is entitled to the labels of its join token, to addresses of no other node, and to workload networks
inside --workload-range of the control server that no other node uses. Other requests are pending in
spec.requested of the Node, and warnings of the node name them.

Examples:
  tidegate describe node edge-1
  tidegate node accept edge-1";

pub(super) const CREATE_HELP: &str = "\
Examples:
  tidegate create service web --port 80:8080 --endpoint 10.1.1.11 --endpoint 10.1.2.13 --address auto";

pub(super) const CREATE_CERTIFICATE_HELP: &str = "\
The private key is stored by the control servers, and only gateways can read it.

Examples:
  tidegate create certificate www --cert fullchain.pem --key privkey.pem -n shop
  tidegate create certificate www --cert fullchain.pem --key privkey.pem -n shop --renew";

pub(super) const CREATE_SERVICE_HELP: &str = "\
Fails if the Service exists. The EndpointSet has the name of the Service.

Examples:
  tidegate create service web --port 80:8080 --endpoint 10.1.1.11 --endpoint 10.1.2.13 --address auto
  tidegate create service resolver --port 53/udp --port 53/tcp --selector app=resolver
  tidegate create service web --port 80 --endpoint 10.1.1.11 --dry-run -o yaml > web.yaml";

pub(super) const EDIT_HELP: &str = "\
Opens the object as YAML in the program of VISUAL or EDITOR (default: vi). The saved text replaces the object unless
somebody changed it meanwhile. If the server rejects it, the editor opens again with the reason in comments. A file
without a change cancels.

Examples:
  tidegate edit svc web
  EDITOR='code --wait' tidegate edit pool/lan -m 'more addresses'";

pub(super) const PATCH_HELP: &str = "\
The patch is a JSON merge patch (RFC 7396): it contains the fields to change, null removes a field, and a list
replaces the whole list.

Examples:
  tidegate patch svc web -p '{\"spec\":{\"sessionAffinity\":\"ClientIP\"}}'
  tidegate patch svc web -p 'spec: {disabled: true}' --dry-run
  tidegate patch node/node-1 --patch-file zone.yaml";

pub(super) const LABEL_HELP: &str = "\
An existing label is replaced only with --overwrite. If somebody changes the object at the same time, the command
fails and can be repeated.

Examples:
  tidegate label svc web tier=front     set a label
  tidegate label wl web-1 web-2 tier-   remove a label of two Workloads
  tidegate label node/node-1 rack=b --overwrite";

pub(super) const ANNOTATE_HELP: &str = "\
An existing annotation is replaced only with --overwrite.

Examples:
  tidegate annotate svc web example.org/owner='team a'
  tidegate annotate svc web example.org/owner-";

pub(super) const API_EXPLAIN_HELP: &str = "\
`tidegate explain svc.spec.ports` does the same.

Examples:
  tidegate api explain svc              fields of a Service
  tidegate api explain svc.spec.ports
  tidegate api explain pool.spec.addresses";

pub(super) const CONTEXT_HELP: &str = "\
With a context, config.toml is not read. --context and TIDEGATE_CONTEXT choose a context for one command.

Examples:
  tidegate context list
  tidegate context use prod
  tidegate context use prod --namespace shop
  tidegate --context prod status";

pub(super) const SUPPORT_BUNDLE_HELP: &str = "\
The file contains status, history, audit log, all objects, BGP sessions and the checks of up to 50 nodes. Values of
fields such as password and token, and the token of the command, are replaced. What you may not read is missing and
listed in errors.txt.

Examples:
  tidegate support-bundle
  tidegate support-bundle -o /tmp/report.tar.gz && tar -tzf /tmp/report.tar.gz";
