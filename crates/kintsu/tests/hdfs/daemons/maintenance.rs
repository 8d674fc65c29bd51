//! DataNodes that an operator has in maintenance, by HDFS's list of hosts in JSON.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Hdfs;

fn list(dir: &Path) -> PathBuf {
    dir.join("hosts.json")
}

/// The settings of a NameNode with such a list, and the list. With nobody in service in it, all DataNodes are.
pub fn prepare(dir: &Path) -> [String; 2] {
    std::fs::write(list(dir), "[]").unwrap();
    let manager = "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager";
    [format!("dfs.namenode.hosts.provider.classname={manager}"), format!("dfs.hosts={}", list(dir).display())]
}

impl Hdfs {
    /// Has these DataNodes in maintenance, and no others, and waits until it is so for those that live.
    pub fn maintain(&self, nodes: &[u32]) {
        let hosts = nodes.iter().map(|i| {
            let port = u32::from(self.port) + 10 + 3 * i;
            json!({"hostName": "127.0.0.1", "port": port, "adminState": "IN_MAINTENANCE"})
        });
        let hosts = hosts.collect::<Vec<_>>();
        std::fs::write(list(self.dir.path()), json!(hosts).to_string()).unwrap();
        self.stock(&["admin", "-refreshNodes"]);
        self.wait("the maintenance to begin or end", || {
            let live = self.live();
            live.iter().all(|node| {
                let state = if nodes.contains(&self.number(node)) { 4 } else { 0 };
                node.admin_state.unwrap_or(0) == state
            })
        });
    }
}
