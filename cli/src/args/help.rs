//! What follows the flags in `--help`: examples that can be pasted, and what has no flag to stand at.

pub(super) const AFTER_HELP: &str = "\
First steps:
  tidegate status                       is everything as it should be?
  tidegate apply -f web.yaml            create or change what the file says
  tidegate get services                 what there is
  tidegate describe service web         everything about one, with what is wrong and what to do
  tidegate get endpoints web -o wide    where its traffic goes
  tidegate traffic web                  how much went there
  tidegate top services                 the busiest Services
  tidegate explain web                  each step from its addresses to its endpoints
  tidegate wait svc/web --for=ready     return when it is
  tidegate get addresses                which node announces which load balancer address
  tidegate bgp peers                    how the sessions with routers stand
  tidegate history                      what was changed, by whom and why

Exit codes:
  0  done
  1  the server refused, or something failed; the reason is on stderr
  2  the command line is wrong; for `status`: there are problems
  3  no answer: the server was not reached, or not in time";

pub(super) const GET_HELP: &str = "\
Kinds:
  services (svc)       stable addresses in front of endpoints
  endpointsets (eps)   endpoints given by hand
  workloads (wl)       anything with an address, picked by a Service's selector
  nodes (no)           machines with an agent
  addresspools (pool)  load balancer addresses that may be given out, and to whom
  advertisements (adv) which nodes announce the addresses of which pools
  bgppeers (peer)      routers that nodes have BGP sessions with
  bfdprofiles (bfd)    how paths to routers are watched by BFD
  addresses (addr)     each address in use, who has it, which node announces it; read only
  endpoints (ep)       what the server computed for each Service; read only
  all                  every kind that is written: not addresses, not endpoints

Examples:
  tidegate get svc                      Services of the namespace `default`
  tidegate get svc,eps -A               two kinds in every namespace
  tidegate get svc web -o yaml          one Service, all of it
  tidegate get wl -l 'app=web,tier in (a,b)'
  tidegate get ep web -o wide           each endpoint: ready, serving, terminating
  tidegate get addr                     who announces which address, and since when
  tidegate get addr 2001:db8::1 -o wide the same with candidates, counters and conflicts
  tidegate get nodes -w                 the table, then a row for each change";

pub(super) const DESCRIBE_HELP: &str = "\
Examples:
  tidegate describe svc web             conditions with reasons and hints, endpoints, nodes that lag
  tidegate describe pool lan            what it gives, how much is left, who holds what
  tidegate describe peer tor-1          which nodes have a session with the router, and as whom
  tidegate describe addr 192.0.2.7      who announces it, who would, and why the others would not
  tidegate describe node/node-1         what its agent found and how far it is";

pub(super) const APPLY_HELP: &str = "\
All of it is accepted, as one revision, or none. Applying the same file twice changes nothing.
Files travel as they are and the server checks them; every mistake is reported at once.

Examples:
  tidegate apply -f web.yaml            one file: YAML documents or JSON
  tidegate apply -f conf.d/             its .yaml, .yml and .json files in the order of their names
  render | tidegate apply -f -          from stdin
  tidegate apply -f web.yaml --dry-run  what would happen
  tidegate apply -f conf.d/ --apply-set shop --prune
                                        and remove what earlier applies of the set named and this one does not
  tidegate apply -f pool.yaml --evict   make a pool smaller though Services hold some of it
  tidegate apply --plan 00d1f7c0a4be25c9
                                        do what `tidegate plan` has shown, if the objects are as they were";

pub(super) const PLAN_HELP: &str = "\
Nothing is changed. Lines with + would come and lines with - would go: objects first, then load balancer addresses and who
answers for them, then for each node what its kernel would list and what it would announce.
Ends with 0 when nothing would change, with 2 when something would, and with 1 when there is no plan.

Examples:
  tidegate plan -f web.yaml             what would happen; the last line names the plan
  tidegate plan -f conf.d/ --apply-set shop --prune
                                        with what the prune would remove
  tidegate plan -f web.yaml -o json     for a program that decides";

pub(super) const DIFF_HELP: &str = "\
Nothing is changed, and no node is asked; `tidegate plan` does that.
Ends with 0 when nothing differs, with 1 when something does, and with 2 or more when that cannot be said.

Examples:
  tidegate diff -f web.yaml             before an apply
  tidegate diff -f conf.d/ && echo same";

pub(super) const DELETE_HELP: &str = "\
Nothing is asked: the objects are named. Their addresses and ports become free.

Examples:
  tidegate delete svc web api           two Services
  tidegate delete svc/web eps/web-a     of several kinds
  tidegate delete -f web.yaml           what the file names, last first
  tidegate delete pool lan --evict      a pool though Services hold addresses of it";

pub(super) const STATUS_HELP: &str = "\
Exit codes:
  0  every node has everything, every Service is ready
  2  there are problems; each is printed with its reason and what to do
  1 and 3 as for every command, so that a monitor can tell `wrong` from `cannot say`";

pub(super) const TRAFFIC_HELP: &str = "\
Counted by each node since it programmed the endpoint, and reported every 10 s or so (AGE). A figure that the
proxy mode of the node does not count is shown as `-`. CONN/S and BYTES/S are averages between the last two
readings of the node. FAILED is what the relay of userspace mode met: connections that the endpoint refused, did not
answer, or broke off.

Examples:
  tidegate traffic web                  connections, packets and bytes of Service web
  tidegate traffic web -n shop -o json  with the sums of each node";

pub(super) const DOCTOR_HELP: &str = "\
The agents look at this moment: at what the proxy mode needs, at rules and marks of others, at tables, sizes
and programs that stand in the way of traffic, and at the clock. Without --fix they change nothing. Each
finding says why it matters and how it is put right. Ends with 2 when something is broken, with 1 when a node
does not answer or a fix failed.

Examples:
  tidegate doctor                       what is odd, on every node
  tidegate doctor node/node-1 --all     everything that was looked at on one
  tidegate doctor --fix                 put right what is safe to, after a question";

pub(super) const TOP_HELP: &str = "\
Examples:
  tidegate top services                 most new connections first
  tidegate top nodes                    which node is the slowest, and why";

pub(super) const TOP_SERVICES_HELP: &str = "\
Rates are averages between the last two readings of each node, which are 10 s apart or a little more.

Examples:
  tidegate top services --sort byte-rate -n shop --limit 5
  tidegate top services --watch         again whenever something has changed";

pub(super) const TOP_NODES_HELP: &str = "\
Times are from the commit of a change until the node says that it has read it back, of the last 256 changes.

Examples:
  tidegate top nodes -o json";

pub(super) const WAIT_HELP: &str = "\
Looks again until it is so; says on stderr why it is not, when that changes. Ends with 0 when it is so, with 1 after --at-most.

Goals:
  verified   every node has it in its kernel, read back (Services and nodes); without an object: every node that is connected
             has everything that the server held when the command began
  ready, announced, condition=TYPE[=STATUS]
             a condition that `describe` shows
  deleted    there is no such object

Examples:
  tidegate apply -f web.yaml && tidegate wait
  tidegate wait svc/web --for=ready --at-most=2m
  tidegate wait svc/web --for=condition=EndpointsAvailable=False
  tidegate delete svc web && tidegate wait svc/web --for=deleted";

pub(super) const WHAT_IF_HELP: &str = "\
Nothing is changed by asking. Ends with 2 when a Service or an address would be lost, with 0 otherwise.

Examples:
  tidegate what-if                      what hangs on one node as it is
  tidegate what-if --fail node/rack1-a  before work on a machine
  tidegate what-if --fail a,b -o json";
pub(super) const HEALTH_HELP: &str = "\
An endpoint is checked by its own node or, where it has none, by up to three nodes of which most decide. Unknown: none of
them reports; what was decided last holds. SHARE is how much of its weight counts: 0 while it is out of service.

Examples:
  tidegate health web           what is seen of each endpoint of Service web, since when, by which nodes
  tidegate health web -o wide   with the word of each node
  tidegate health --guard       what is unhealthy and kept in service, because so many failed at once
  tidegate health --confirm     they really failed: take them out";

pub(super) const WATCH_HELP: &str = "\
First everything there is as ADDED, then each change in order. When the connection is cut, it says so on stderr and goes
on from the last position; objects of a revision that was cut in the middle come again. Stops with Ctrl-C.

Examples:
  tidegate watch                        everything
  tidegate watch svc eps -n shop        two kinds of one namespace
  tidegate watch -o json                an event per line, with the positions at which one may resume
  tidegate watch --resume 1763712000-42 only what came after; refused when too much has changed since";

pub(super) const BGP_HELP: &str = "\
What is shown is what the agents last reported, within seconds of what happens. What a router does with what
it was told, the router knows.

Examples:
  tidegate bgp peers                    is every session established, and if not, why?
  tidegate bgp routes --address 192.0.2.7
                                        which routers have this address, from which nodes
  tidegate bgp events                   what went up and down of late";

pub(super) const BGP_PEERS_HELP: &str = "\
SINCE is the time in the state, PREFIXES what the router has from the node. Below the table it says what to
do about sessions that are not established. The states are those of RFC 4271; `Unknown` means that the agent
of the node is silent.

Examples:
  tidegate bgp peers --state active     who waits for a router
  tidegate bgp peers --node node-1 -o wide
                                        with timers, counters and the last errors of both sides
  tidegate bgp peers --peer tor-1 -o json";

pub(super) const BGP_ROUTES_HELP: &str = "\
States:
  Announced  the router was told, with the attributes of DETAILS
  Waiting    the router is to be told, and DETAILS says for what that waits, such as a session
  Withheld   no router is told, and DETAILS says why, such as a Service without ready endpoints
  Unknown    the agent of the node is silent

Examples:
  tidegate bgp routes --peer tor-1      all that this router has
  tidegate bgp routes --prefix 192.0.2.0/24 -o wide
                                        what became of the prefixes of a pool, and for which addresses
  tidegate bgp routes --node node-1 -o yaml";

pub(super) const BGP_EVENTS_HELP: &str = "\
The server keeps the last 500 of each node in memory.

Examples:
  tidegate bgp events --last 10         what happened last
  tidegate bgp events --peer tor-1      of one router, on all nodes
  tidegate bgp events --node node-1 -o json";

pub(super) const HISTORY_HELP: &str = "\
+ is new, ~ has changed, - is gone. Who is named as author said so; the address it came from is what the
server saw. What the server wrote by itself is by `tidegate`.

Examples:
  tidegate history                      the last changes
  tidegate history svc/web              of one object
  tidegate history 42                   one change: every field, and when the nodes had it
  tidegate history 42 --rules           with the lines that it changed in each node's kernel
  tidegate history 42 -o yaml           with every object before and after";

pub(super) const ROLLBACK_HELP: &str = "\
Every object that somebody wrote after the revision becomes what it was at it, or is removed: as one change,
which can be undone by another rollback. Services get their addresses and node ports back where those are
free. What the server and the agents wrote by themselves stays.

Examples:
  tidegate rollback 41 --dry-run        what would change
  tidegate rollback 41 -m 'the new ports were wrong'
  tidegate rollback 42 --only           undo the one change 42, and keep what came after it";

pub(super) const AUDIT_HELP: &str = "\
The server keeps the last 10,000 requests that changed something, and the last 2,000 that did not, for 400
days at most; a restart loses none.

Examples:
  tidegate audit                        who asked for what of late, and what became of it
  tidegate audit --last 500 -o json";

pub(super) const BACKUP_HELP: &str = "\
The file is one state of everything, with a checksum; `tidegate store verify` checks it. It holds every secret of the
cluster in the clear. What nodes observed and the audit log are not in it.

Examples:
  tidegate backup -o tidegate.backup              objects, keys, tokens and roles
  tidegate backup -o tidegate.backup --history    also the history of writes";

pub(super) const STORE_HELP: &str = "\
No server may use the store meanwhile, but for verify, which needs none.

Examples:
  tidegate store verify tidegate.backup
  tidegate store restore --from tidegate.backup --store sqlite:/var/lib/tidegate/tidegate.sqlite --dry-run
  tidegate store migrate --from sqlite:old.sqlite --to sqlite:new.sqlite";

pub(super) const CONFIRM_HELP: &str = "\
When the database of the server is empty, foreign or an old backup, a node that would lose most of what it
serves goes on with what it has, and says so (condition Converged, reason StateHeld). Put the right database
back, and nothing happens to traffic. If the loss is meant, confirm it, for exactly the epoch that is named.
Exit code 2 says that something is held back.

Examples:
  tidegate confirm node/node-1          what it holds back, and the command that confirms it
  tidegate confirm node/node-1 --epoch 1767225600";

pub(super) const MOVE_HELP: &str = "\
The node comes first among the candidates of the address: it announces the address at once, and the former
owner stops. A node that is no candidate is refused with the reason. The address stays there until the node
fails or is drained, or until it is moved again.

Examples:
  tidegate get addr 192.0.2.7 -o wide   who has it, and who may
  tidegate move 192.0.2.7 node-2        before work on the node that has it
  tidegate move 2001:db8::7 node-2 --dry-run";

pub(super) const DRAIN_HELP: &str = "\
New connections go elsewhere at once, or are refused where nothing else is there. Established TCP connections
finish, whatever the removal policy of the Service; those that are left at the deadline are cut by each node,
by its own clock, also while the server is away. UDP flows move at once. The end of --wait says that every node
has counted and no connection is left; exit code 1 says that --wait-timeout came first.

Examples:
  tidegate drain endpoint 10.1.13.2 --deadline 5m --wait
  tidegate drain workload web-1 -n shop --reason upgrade
  tidegate drain node node-2 --deadline 2h --wait --wait-timeout 3h
  tidegate drain service web --dry-run";

pub(super) const MAINTENANCE_HELP: &str = "\
It is no endpoint any longer, not even as a last resort. What happens to established connections is what the
removal policy of the Service says (spec.removalPolicy); by default they go on.

Examples:
  tidegate maintenance endpoint 10.1.13.2 --reason broken-disk
  tidegate maintenance node node-2 --wait --wait-timeout 10m";

pub(super) const UNDRAIN_HELP: &str = "\
Only what the object itself says is taken back: an endpoint on a Node that drains goes on draining.

Examples:
  tidegate undrain endpoint 10.1.13.2
  tidegate undrain node node-2";

pub(super) const IMPORT_HELP: &str = "\
Understood are, together and in any order:
  kubernetes   Service, Endpoints, EndpointSlice, Node
  metallb      IPAddressPool, L2Advertisement, BGPPeer, BGPAdvertisement, BFDProfile, Community; also the deprecated
               AddressPool, and the ConfigMap of old or its embedded text alone
  kube-proxy   KubeProxyConfiguration, also in the ConfigMap kube-proxy: settings of agents, printed as their file
  ipvsadm      what `ipvsadm -S -n` writes
  keepalived   keepalived.conf: virtual servers, their checks, and the addresses of VRRP
What becomes of every setting is said on stderr, a line each: mapped, approximated (with the difference), or
ignored (with the reason). Passwords are carried over and stand in the output; Secrets are not read.

Examples:
  tidegate import metallb.yaml > pools.yaml
  tidegate import metallb.yaml --apply --dry-run
  kubectl get configmap -n kube-system kube-proxy -o yaml | tidegate import -
  kubectl get services,endpointslices -A -o yaml | tidegate import -
  ipvsadm -S -n | tidegate import - --from ipvsadm
  tidegate import /etc/keepalived/keepalived.conf";

pub(super) const EXPORT_HELP: &str = "\
Services and EndpointSets as Services and EndpointSlices of Kubernetes; pools, advertisements, peers and BFD
profiles as resources of MetalLB. What became of every setting is said as by `tidegate import`, which reads the output.
What would be more than before, such as a disabled Service, is left out.

Examples:
  tidegate export --format kubernetes -A > services.yaml
  tidegate export --format metallb --report report.txt > metallb.yaml
  tidegate export --format metallb -f pools.yaml";

pub(super) const COMPLETIONS_HELP: &str = "\
Examples:
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"";

pub(super) const EXPLAIN_HELP: &str = "\
The desired state is followed step by step, and the nodes are asked what their kernels hold, read anew. The first step that
is broken, and the first difference between both, are said. Nothing is sent to the network.

Examples:
  tidegate explain 198.51.100.7 '->' 203.0.113.10:443/tcp
  tidegate explain 10.1.1.2 '[fd00:96::10]:53/udp' --at node-1
  tidegate explain 203.0.113.10         why the address answers, or does not
  tidegate explain web -n shop          each way in on each node, to the endpoints
  tidegate explain web --graph=mermaid  the chain graph of the Service
  tidegate explain web -o json          all of it

A shell takes > for itself: write '->' in quotes, or leave it out.";

pub(super) const TOKEN_HELP: &str = "\
Where the server asks who is there, every command needs a token. The first one is in the file that the server names when it
starts.

Examples:
  tidegate token create ci --role operator -n shop --expires-in 90d > ci.token
  tidegate token list
  tidegate token revoke ci";

pub(super) const TOKEN_CREATE_HELP: &str = "\
The token goes to stdout, all else to stderr. Nobody can give away what they may not do themselves.

Examples:
  tidegate token create grafana --role viewer > grafana.token
  tidegate token create shop --role operator -n shop --pool web --endpoint-range 10.1.0.0/16 > shop.token";

pub(super) const ROLE_HELP: &str = "\
Built in are viewer, operator and admin; agent is what agents are, by their certificates.

Examples:
  tidegate role list
  tidegate role apply deployer -f deployer.yaml
  tidegate role delete deployer";

pub(super) const ROLE_APPLY_HELP: &str = "\
The file has a list of rules; what one of them allows is allowed:
  rules:
    - verbs: [get, list, create, update, plan]
      kinds: [Service, EndpointSet]
      namespaces: [shop]

Examples:
  tidegate role apply deployer -f deployer.yaml";

pub(super) const CAN_I_HELP: &str = "\
Ends with 0 for yes and 1 for no.

Examples:
  tidegate can-i update service -n shop
  tidegate can-i create Token";

pub(super) const JOIN_TOKEN_HELP: &str = "\
The token goes to stdout. It also says which authority the server's certificate must be of.

Examples:
  tidegate node join-token node-1 > node-1.join";
