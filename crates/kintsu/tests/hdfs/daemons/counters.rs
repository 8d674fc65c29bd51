//! What the daemons of HDFS count themselves. It is at most a second old.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::Hdfs;

/// Calls that the NameNode was asked since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Pages of folders.
    pub listings: u64,
    /// What is at a path.
    pub files: u64,
    /// Where the blocks of a file are.
    pub locations: u64,
}

impl Hdfs {
    /// The bytes of blocks that each running DataNode has sent.
    pub fn sent(&self) -> BTreeMap<u32, u64> {
        let sent =
            |i: u32| bean(self.http(i), "DataNode,name=DataNodeActivity-*")["BytesRead"].as_u64().unwrap();
        self.datanodes.keys().map(|i| (*i, sent(*i))).collect()
    }

    /// The port for HTTP of a DataNode, which listens last.
    pub fn http(&self, i: u32) -> u16 {
        self.port + 11 + 3 * i as u16
    }

    /// What the only NameNode was asked.
    pub fn asked(&self) -> Asked {
        let calls = bean(self.port + 1, &format!("NameNode,name=RpcDetailedActivityForPort{}", self.port));
        let count = |call: &str| calls[format!("{call}NumOps")].as_u64().unwrap_or(0);
        Asked {
            listings: count("GetListing"),
            files: count("GetFileInfo"),
            locations: count("GetBlockLocations"),
        }
    }
}

/// The counters that the daemon with this port for HTTP has under a name.
fn bean(port: u16, name: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let ask = format!("GET /jmx?qry=Hadoop:service={name} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let mut beans: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    let bean = beans["beans"][0].take();
    assert!(bean.is_object(), "{answer}");
    bean
}
