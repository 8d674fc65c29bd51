//! Bad input: a clear error that says what was expected and what came, nothing changed, exit
//! code not 0.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::io::BufRead as _;
use std::path::Path;
use std::process::Stdio;

use cluster::{Cluster, Running, kintsu, sha256, skipped, text};

/// The message must mention every one of these words.
fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "expected {word:?} in: {message}");
    }
}

#[test]
fn codes_as_data() {
    let cluster = Cluster::start(6, 6);
    let path = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let export = |code: &str, name: &str, file: &str| {
        let out = cluster.run(&["code", "export", code, "--as", name]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        std::fs::write(path(file), out.stdout).unwrap();
    };
    export("azure-lrc:n=6,k=3,r=2", "user:mine", "mine.json");
    let definition = std::fs::read_to_string(path("mine.json")).unwrap();
    let spoilt = |from: &str, to: &str| {
        assert!(definition.contains(from), "{definition}");
        std::fs::write(path("spoilt.json"), definition.replacen(from, to, 1)).unwrap();
        cluster.refused(&["code", "register", &path("spoilt.json")])
    };
    says(&spoilt("\"distance\":3", "\"distance\":4"), &["distance"]);
    says(&spoilt("\"010000\"", "\"01000\""), &["not the definition", "5 hex digits"]);
    says(&spoilt("\"010000\"", "\"0100\""), &["expected 6 rows of 3 elements", "got 2 in row 0"]);
    says(&spoilt("\"010000\"", "[1,0,256]"), &["got 256"]);
    says(&spoilt("user:mine", "rs:n=6,k=3"), &["user:"]);
    says(&cluster.refused(&["code", "register", "/does/not/exist"]), &["/does/not/exist"]);
    says(&cluster.refused(&["code", "export", "rs:n=6,k=3", "--as", "mine"]), &["user:", "mine"]);
    let file = cluster.file("object", 100_000);
    let put = ["put", file.to_str().unwrap(), "object", "--code", "user:mine"];
    for unknown in [&put[..], &["code", "show", "user:mine"], &["code", "unregister", "user:mine"]] {
        says(&cluster.refused(unknown), &["user:mine", "none of that name"]);
    }
    assert_eq!(cluster.json(&["code", "registered"]).as_array().unwrap().len(), 0);

    assert_eq!(cluster.json(&["code", "register", &path("mine.json")])["new"], true);
    assert_eq!(cluster.json(&["code", "register", &path("mine.json")])["new"], false);
    export("rs:n=6,k=3", "user:mine", "other.json");
    says(&cluster.refused(&["code", "register", &path("other.json")]), &["user:mine", "another definition"]);
    assert_eq!(cluster.json(&["code", "registered"])[0]["name"], "user:mine");
    assert_eq!(cluster.json(&["code", "show", "user:mine"])["distance"], 3);
    cluster.json(&put);
    says(&cluster.refused(&["code", "unregister", "user:mine"]), &["object"]);
    assert_eq!(cluster.get_sha("object"), sha256(&file));
    cluster.json(&["rm", "object"]);
    cluster.json(&["code", "unregister", "user:mine"]);
}

#[test]
fn objects_codes_and_ranges() {
    let cluster = Cluster::start(9, 3);
    let file = cluster.file("object", 1000);
    let file_name = file.to_str().unwrap();
    cluster.put(&file, "object", &["--code", "rs:n=6,k=4"]);
    let before = cluster.json(&["ls"]);
    let put = |code: &str| cluster.refused(&["put", file_name, "new", "--code", code]);
    says(&put("raid:n=6,k=4"), &["raid", "rs", "azure-lrc"]);
    says(&put("rs:n=6,k=4,color=red"), &["color"]);
    says(&put("rs:n=4,k=4"), &["n", "k", "4"]);
    says(&put("rs:n=300,k=4"), &["255", "300"]);
    says(&put("rs:n=6"), &["k"]);
    says(&put("rs:n=26,k=20,matrix=isal"), &["isal"]);
    let large = cluster.file("large", 3_000_000);
    let message = cluster.refused(&["put", large.to_str().unwrap(), "new", "--code", "rs:n=14,k=10"]);
    says(&message, &["14", "9"]);
    says(&cluster.refused(&["put", file_name, "object", "--code", "rs:n=6,k=4"]), &["object", "--replace"]);
    says(&cluster.refused(&["put", "/does/not/exist", "new"]), &["/does/not/exist"]);
    says(&cluster.refused(&["put", file_name, ""]), &["name"]);
    says(&cluster.refused(&["get", "nothing", "/tmp/kintsu-never"]), &["nothing"]);
    says(&cluster.refused(&["get", "nothing/", "/tmp/kintsu-never"]), &["nothing/"]);
    assert!(!Path::new("/tmp/kintsu-never").exists());
    for name in ["stat", "rm", "encode"] {
        says(&cluster.refused(&[name, "nothing"]), &["nothing"]);
    }
    let out = cluster.dir.path().join("out");
    let out = out.to_str().unwrap();
    says(&cluster.refused(&["get", "object", out, "--range", "0-1000"]), &["1000"]);
    says(&cluster.refused(&["get", "object", out, "--range", "5-4"]), &["A-B"]);
    says(&cluster.refused(&["get", "object", out, "--range", "2000-"]), &["1000 bytes", "2000 on"]);
    cluster.json(&["get", "object", out, "--range", "10-19"]);
    assert_eq!(std::fs::read(out).unwrap(), std::fs::read(&file).unwrap()[10..20]);
    says(&cluster.refused(&["explain", "object", "--lost", "9"]), &["9"]);
    cluster.put(&large, "large", &["--code", "rs:n=6,k=4"]);
    says(&cluster.refused(&["explain", "large", "--lost", "0,1,2"]), &["left", "need"]);
    cluster.json(&["rm", "large"]);
    says(&cluster.refused(&["repair", "--node", "77"]), &["77"]);
    let unknown = cluster.refused(&["node", "stop", "77"]);
    assert!(unknown.contains("77") && !unknown.contains("NodeId"), "{unknown}");
    assert_eq!(cluster.json(&["ls"]), before);
    assert_eq!(cluster.get_sha("object"), sha256(&file));
}

#[test]
fn more_losses_than_the_code_can_bear_name_what_is_left_and_needed() {
    let mut cluster = Cluster::start(6, 3);
    let file = cluster.file("object", 1_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=6,k=4"]);
    [0, 1, 2].iter().for_each(|&id| cluster.kill(id));
    let out = cluster.dir.path().join("out");
    let message = cluster.refused(&["get", "object", out.to_str().unwrap()]);
    says(&message, &["left", "need"]);
    assert!(!out.exists(), "no half file");
    [0, 1, 2].iter().for_each(|&id| cluster.start_agent(id));
    cluster.wait_alive(6);
    assert_eq!(cluster.get_sha("object"), sha256(&file));
}

#[test]
fn too_few_racks_are_pointed_out() {
    let file_of = |cluster: &Cluster| cluster.file("object", 1_000_000).to_str().unwrap().to_owned();
    let said = |racks: u32| {
        let cluster = Cluster::start(6, racks);
        let out = cluster.run(&["put", &file_of(&cluster), "object", "--code", "rs:n=6,k=4"]);
        assert!(out.status.success());
        text(&out.stderr)
    };
    says(&said(2), &["too few racks", "rs:n=6,k=4"]);
    assert_eq!(said(3), "");
}

#[test]
fn listeners_refuse_to_leave_loopback() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for args in [
        vec!["coordinator", "--dir", dir, "--listen", "0.0.0.0:0"],
        vec!["up", "--nodes", "3", "--racks", "3", "--dir", dir, "--listen", "0.0.0.0:0"],
        vec!["agent", "--dir", dir, "--listen", "0.0.0.0:0"],
        vec!["agent", "--dir", dir, "--listen-data", "0.0.0.0:0"],
        vec!["coordinator", "--dir", dir, "--listen", "0.0.0.0:0", "--token", "secret"],
    ] {
        let out = kintsu().args(&args).output().unwrap();
        assert!(!out.status.success(), "{args:?}");
        says(&text(&out.stderr), &["loopback", "TLS"]);
    }
}

/// An address of this machine besides loopback, if it has one. Nothing is sent: the kernel only says from where it would.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// As `docs/security.md` has it, on a network of this machine alone.
#[test]
fn a_token_opens_listeners_on_a_trusted_network() {
    let Some(address) = own_address() else { return skipped("no address besides loopback to listen on") };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (any, network, secret) = (format!("{address}:0"), format!("{address}/32"), path("token"));
    let (token, here) = (["--token-file", secret.as_str()], ["--trusted-network", network.as_str()]);
    std::fs::write(&secret, "aSecretOfTheNetwork\n").unwrap();
    // Starts a daemon; returns what it says when it is ready.
    let start = |args: &[&str]| {
        let mut command = kintsu();
        command.args(args).args(["--json", "--listen", &any]).args(token).args(here);
        let mut child = Running::new(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, serde_json::from_str::<serde_json::Value>(&line).unwrap())
    };
    let folder = path("coordinator");
    for lacks in [&token[..], &here] {
        let out = kintsu().args(["coordinator", "--dir", &folder, "--listen", &any]).args(lacks).output();
        let out = out.unwrap();
        assert!(!out.status.success(), "{lacks:?}");
        says(&text(&out.stderr), &["token", "trusted network"]);
    }
    let (_coordinator, ready) = start(&["coordinator", "--no-page", "--dir", &folder]);
    let at = ["--coordinator", ready["listen"].as_str().unwrap()];
    let disk = path("disk");
    let (_agent, _) = start(&[&["agent", "--listen-data", &any, "--dir", &disk][..], &at].concat());
    let nodes = kintsu().args(["nodes", "--json"]).args(at).args(token).output().unwrap();
    let nodes: serde_json::Value = serde_json::from_slice(&nodes.stdout).unwrap();
    let control = nodes[0]["control"].as_str().unwrap();
    assert!(nodes[0]["state"] == "alive" && control.starts_with(&format!("{address}:")), "{nodes}");
    let stranger = kintsu().args(["nodes", "--json"]).args(at).output().unwrap();
    assert!(!stranger.status.success());
    says(&text(&stranger.stderr), &["refused"]);
}

#[test]
fn a_second_up_on_the_same_directory_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let start = |listen: &str| {
        let mut command = kintsu();
        command
            .args(["up", "--nodes", "3", "--racks", "3", "--json", "--listen", listen, "--dir"])
            .arg(dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut first = Running::new(start("127.0.0.1:0"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(first.stdout.take().unwrap()), &mut line)
        .unwrap();
    let endpoint =
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["listen"].as_str().unwrap().to_owned();
    let second = start("127.0.0.1:0").wait_with_output().unwrap();
    assert!(!second.status.success());
    says(&text(&second.stderr), &[dir.path().to_str().unwrap(), "locked", "running"]);
    let status = kintsu().args(["status", "--json", "--coordinator", &endpoint]).output().unwrap();
    assert!(status.status.success(), "{}", text(&status.stderr));
}

#[test]
fn garbage_on_the_listeners_harms_nothing() {
    use std::io::{Read, Write};
    let cluster = Cluster::start(4, 2);
    let file = cluster.file("object", 50_000);
    cluster.put(&file, "object", &["--code", "rs:n=4,k=2"]);
    let nodes = cluster.json(&["nodes"]);
    let mut addresses = vec![cluster.endpoint.clone()];
    for node in nodes.as_array().unwrap() {
        addresses.push(node["control"].as_str().unwrap().to_owned());
        addresses.push(node["data"].as_str().unwrap().to_owned());
    }
    for address in &addresses {
        for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 4096], &[0; 100], b"K"] {
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            // The peer may close at once.
            let _ = socket.write_all(bytes);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read(&mut [0; 64]);
        }
    }
    assert_eq!(cluster.get_sha("object"), sha256(&file));
    cluster.wait_alive(4);
}

#[test]
fn a_client_without_a_cluster_is_told_what_to_do() {
    let out = kintsu().args(["ls", "--coordinator", "127.0.0.1:1"]).output().unwrap();
    assert!(!out.status.success());
    says(&text(&out.stderr), &["127.0.0.1:1", "kintsu up"]);
}

#[test]
fn certificates() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let run = |args: &[&str]| kintsu().args(args).output().unwrap();
    let refused = |args: &[&str]| {
        let out = run(args);
        assert!(!out.status.success(), "{args:?}");
        text(&out.stderr)
    };
    let (ca, out) = (path("ca"), path("out"));
    says(&refused(&["ca", "issue", &ca, "--role", "client", "--out", &out]), &["kintsu ca init"]);
    assert!(run(&["ca", "init", &ca]).status.success());
    says(&refused(&["ca", "init", &ca]), &["ca-key.pem", "remove it"]);
    says(&refused(&["ca", "issue", &ca, "--role", "root", "--out", &out]), &["expected coordinator", "root"]);
    assert!(run(&["ca", "issue", &ca, "--role", "client", "--out", &out]).status.success());
    says(&refused(&["ca", "issue", &ca, "--role", "client", "--out", &out]), &["--replace"]);
    says(&refused(&["status", "--tls", &path("nowhere")]), &["certificates (PEM)", "ca.pem"]);
    says(&refused(&["status", "--token-file", &path("nowhere")]), &["cannot read the token", "nowhere"]);
    let data = path("data");
    let coordinator = ["coordinator", "--dir", &data, "--listen", "127.0.0.1:0", "--tls", &out];
    says(&refused(&coordinator), &["expected one for a coordinator", "got client"]);
}
