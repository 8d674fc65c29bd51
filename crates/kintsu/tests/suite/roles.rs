//! What the certificates of clients and operators are good for, command by command.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::cluster::{kintsu, text, wait};
use crate::page::Started;

/// A cluster in TLS.
pub struct Secure {
    pub dir: tempfile::TempDir,
    up: Option<Started>,
}

impl Secure {
    /// Three nodes, each in a rack of its own.
    pub fn start() -> Self {
        let mut secure = Self { dir: tempfile::tempdir().unwrap(), up: None };
        let out = kintsu().args(["ca", "init"]).arg(secure.path("ca")).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        let all = secure.issued("all", &["coordinator", "agent/0", "agent/1", "agent/2"]);
        let mut up = kintsu();
        up.args(["up", "--json", "--no-page", "--nodes", "3", "--racks", "3", "--listen", "127.0.0.1:0"]);
        up.arg("--dir").arg(secure.path("nodes")).arg("--tls").arg(all);
        secure.up = Some(Started::new(up));
        secure
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A folder with a certificate of these roles.
    pub fn issued(&self, name: &str, roles: &[&str]) -> PathBuf {
        let out = self.path(name);
        let mut issue = kintsu();
        issue.args(["ca", "issue"]).arg(self.path("ca")).args(["--host", "127.0.0.1", "--out"]).arg(&out);
        let issued = issue.args(roles.iter().flat_map(|role| ["--role", role])).output().unwrap();
        assert!(issued.status.success(), "{}", text(&issued.stderr));
        out
    }

    /// A command that shows the certificate in this folder.
    pub fn command(&self, tls: &str, args: &[&str]) -> Command {
        let mut command = kintsu();
        command.args(args).env("KINTSU_TLS", self.path(tls));
        command.env("KINTSU_COORDINATOR", self.up.as_ref().unwrap().1["listen"].as_str().unwrap());
        command
    }

    pub fn run(&self, tls: &str, args: &[&str]) -> Output {
        self.command(tls, args).output().unwrap()
    }
}

#[test]
fn each_command_works_with_the_certificate_that_it_is_for() {
    let cluster = Secure::start();
    cluster.issued("client", &["client/alice"]);
    cluster.issued("operator", &["operator/carol"]);
    let (file, out) = (cluster.path("file"), cluster.path("out"));
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    std::fs::write(file, "some bytes").unwrap();
    wait("the nodes", || {
        let nodes = cluster.run("operator", &["nodes", "--json"]);
        serde_json::from_slice::<Value>(&nodes.stdout).is_ok_and(|nodes| {
            nodes.as_array().unwrap().iter().filter(|node| node["state"] == "alive").count() == 3
        })
    });
    let for_clients: [&[&str]; 16] = [
        &["put", file, "object", "--code", "rs:n=3,k=2"],
        &["get", "object", out],
        &["ls"],
        &["stat", "object"],
        &["explain", "object", "--lost", "0"],
        &["repack"],
        &["rm", "object", "--yes"],
        &["volume", "create", "disk", "--size", "1MiB", "--code", "rs:n=3,k=2"],
        &["volume", "ls"],
        &["volume", "stat", "disk"],
        &["volume", "commit", "disk"],
        &["volume", "snapshot", "disk", "monday"],
        &["volume", "read", "monday"],
        &["volume", "rm", "monday"],
        &["volume", "resize", "disk", "--size", "2MiB"],
        &["volume", "rm", "disk"],
    ];
    for tls in ["client", "operator"] {
        for command in for_clients {
            let done = cluster.run(tls, command);
            assert!(done.status.success(), "{tls}: {command:?}: {}", text(&done.stderr));
        }
    }
    let for_operators: [&[&str]; 16] = [
        &["status"],
        &["health"],
        &["nodes"],
        &["df"],
        &["jobs"],
        &["repair"],
        &["scrub"],
        &["rebalance"],
        &["encode", "object"],
        &["quarantine", "ls"],
        &["rebuild"],
        &["rates", "show"],
        &["config", "show"],
        &["code", "registered"],
        &["node", "pause", "0", "--for", "1m"],
        &["backup", out],
    ];
    for command in for_operators {
        let refused = cluster.run("client", command);
        let said = text(&refused.stderr) + &text(&refused.stdout);
        assert!(!refused.status.success() && said.contains("expected an operator"), "{command:?}: {said}");
    }
    // Of an object a client sees all but the nodes' folders.
    let stat = |tls: &str| -> Value {
        let stat = cluster.run(tls, &["stat", "object", "--json"]);
        assert!(stat.status.success(), "{}", text(&stat.stderr));
        serde_json::from_slice(&stat.stdout).unwrap()
    };
    let put = cluster.run("client", for_clients[0]);
    assert!(put.status.success(), "{}", text(&put.stderr));
    let (mut client, mut operator) = (stat("client"), stat("operator"));
    assert_eq!(
        (client["damage"]["health"].as_str(), &client["damage"]),
        (Some("whole"), &operator["damage"])
    );
    for block in client["blocks"].as_array_mut().unwrap() {
        assert_eq!(block["path"].take(), Value::Null);
    }
    for block in operator["blocks"].as_array_mut().unwrap() {
        assert!(block["path"].take().is_string());
    }
    assert_eq!(client, operator);
}
