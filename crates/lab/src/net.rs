//! The network of a lab: switches, links, hosts' namespaces. Made, changed and taken down with `ip` and `tc`.
//!
//! Every host is a network namespace joined by a virtual cable to its rack's switch; racks' switches are joined to
//! the core switch. The lab's own process and the coordinator's host are on a management switch, joined to the core
//! by an unshaped cable that counts what they exchange with nodes. The rate is limited at the sender's end of every cable, so that a full link slows its sender (backpressure). All of this is in the
//! namespaces of [`crate::enter`].
//!
//! The routes select CUBIC for TCP; this needs no privilege beyond the namespace's. Hosts forget what earlier
//! connections learned about a path, so that one measurement does not influence the next.

use std::path::PathBuf;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Link;

use crate::address::{
    self, COORDINATOR_HOST, CORE, HOST_END, MANAGEMENT, MANAGEMENT_CORE_END, MANAGEMENT_END,
};
use crate::command::{batch, run};
use crate::error::{LabError, Result};
use crate::quantity::MTU;
use crate::shape;
use crate::spec::Spec;

/// Hosts that are set up at once.
const AT_ONCE: usize = 8;

/// All links in the lab's own namespace are in this group, so that one command removes them.
const GROUP: u32 = 77;

/// Kernel settings of every namespace: no packets but those of the experiment, no memory of earlier ones.
const QUIET: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6 /proc/sys/net/ipv6/conf/default/disable_ipv6 \
    /proc/sys/net/ipv4/tcp_no_metrics_save";

/// Where set, switches pass frames to a firewall before forwarding them.
const FIREWALL: &str = "/proc/sys/net/bridge/bridge-nf-call-*tables";

/// A shell script that sets those of these kernel settings that exist.
fn set(settings: &str, value: u8) -> String {
    format!("for setting in {settings}; do if [ -e $setting ]; then echo {value} > $setting; fi; done\n")
}

/// Builds everything that `spec` describes, and replaces what exists.
pub async fn build(spec: &Spec) -> Result<()> {
    clear().await;
    run("sh", &["-e"], &[set(QUIET, 1), set(FIREWALL, 0)].concat()).await?;
    batch("ip", &switches_and_cables(spec)).await?;
    let racks = (0..spec.racks.len() as u32).flat_map(|rack| shape::rack(spec, RackId(rack)));
    let downlinks = spec.node_ids().map(|node| shape::downlink(spec, node));
    batch("tc", &racks.chain(downlinks).collect::<Vec<_>>()).await?;
    let coordinator = (COORDINATOR_HOST.to_owned(), host_script(address::COORDINATOR, &[]));
    let nodes = spec.node_ids().map(|node| {
        (
            address::host(node),
            host_script(address::of_node(node), &shape::uplink(spec, node, &spec.limited_peers(node), true)),
        )
    });
    let mut hosts = nodes.chain([coordinator]);
    loop {
        let some: Vec<_> = hosts.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return Ok(());
        }
        let mut set_up = tokio::task::JoinSet::new();
        for (host, script) in some {
            set_up.spawn(async move { in_host(&host, &script).await });
        }
        while let Some(done) = set_up.join_next().await {
            done.map_err(|e| LabError::Io { what: "setting up a host".into(), source: e.into() })??;
        }
    }
}

/// Takes down whatever a lab has built here. Missing parts are no error.
pub async fn clear() {
    let group = GROUP.to_string();
    let _ = run("ip", &["link", "del", "group", &group], "").await;
    let _ = run("ip", &["-all", "netns", "delete"], "").await;
}

/// Gives a link of the network that was built from `built` its current rate in `spec`.
pub async fn reshape(spec: &Spec, link: Link, built: &Spec) -> Result<()> {
    match link {
        Link::NodeUp(node) | Link::Pair(node, _) => {
            let lines = shape::uplink(spec, node, &built.limited_peers(node), false).join("\n") + "\n";
            let host = address::host(node);
            run("tc", &["-n", &host, "-batch", "-"], &lines).await.map(drop)
        }
        Link::NodeDown(node) => batch("tc", &[shape::downlink(spec, node)]).await,
        Link::RackUp(rack) | Link::RackDown(rack) => batch("tc", &shape::rack(spec, rack)).await,
        Link::DiskRead(_) | Link::DiskWrite(_) => Ok(()),
    }
}

/// Pulls a host's cable, or plugs it in again. The host's connections are not told.
pub async fn plug(node: NodeId, plugged: bool) -> Result<()> {
    let state = if plugged { "up" } else { "down" };
    batch("ip", &[format!("link set {} {state}", address::host(node))]).await
}

/// The file that names a host's namespace.
pub fn namespace(host: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(host)
}

fn switches_and_cables(spec: &Spec) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".into(),
        switch(CORE),
        format!("link set {CORE} up"),
        switch(MANAGEMENT),
        format!("addr add {}/16 dev {MANAGEMENT} noprefixroute", address::OWN),
        format!("link set {MANAGEMENT} up"),
        route(MANAGEMENT, address::OWN),
    ];
    lines.extend(uplink(MANAGEMENT, MANAGEMENT_END, MANAGEMENT_CORE_END));
    for rack in (0..spec.racks.len() as u32).map(RackId) {
        let (own, up, down) = (address::switch(rack), address::rack_end(rack), address::core_end(rack));
        lines.push(switch(&own));
        lines.push(format!("link set {own} up"));
        lines.extend(uplink(&own, &up, &down));
    }
    let nodes =
        spec.node_ids().zip(&spec.nodes).map(|(id, node)| (address::host(id), address::switch(node.rack)));
    for (host, switch) in nodes.chain([(COORDINATOR_HOST.to_owned(), MANAGEMENT.to_owned())]) {
        lines.push(format!("netns add {host}"));
        lines.push(format!(
            "link add {host} mtu {MTU} group {GROUP} type veth peer name {HOST_END} mtu {MTU} netns {host}"
        ));
        lines.push(format!("link set {host} master {switch} up"));
    }
    lines
}

/// A cable from a switch to the core.
fn uplink(switch: &str, up: &str, down: &str) -> [String; 3] {
    [
        format!("link add {up} mtu {MTU} group {GROUP} type veth peer name {down} mtu {MTU} group {GROUP}"),
        format!("link set {up} master {switch} up"),
        format!("link set {down} master {CORE} up"),
    ]
}

/// A bridge that forwards at once and does no multicast snooping.
fn switch(name: &str) -> String {
    format!(
        "link add {name} mtu {MTU} group {GROUP} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
    )
}

fn route(device: &str, source: std::net::Ipv4Addr) -> String {
    format!("route add {} dev {device} src {source} congctl cubic", address::NETWORK)
}

fn host_script(addr: std::net::Ipv4Addr, shaping: &[String]) -> String {
    format!(
        "{}\
ip -batch - <<END
link set lo up
addr add {addr}/16 dev {HOST_END} noprefixroute
link set {HOST_END} up
{}
END
tc -batch - <<END
{}
END
",
        set(QUIET, 1),
        route(HOST_END, addr),
        shaping.join("\n")
    )
}

async fn in_host(host: &str, script: &str) -> Result<()> {
    let namespace = format!("--net={}", namespace(host).display());
    run("nsenter", &[&namespace, "sh", "-e"], script).await.map(drop)
}
