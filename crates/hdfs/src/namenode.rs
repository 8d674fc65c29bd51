//! The NameNode: the calls that Kintsu needs, with errors in words. With several NameNodes the active one is found by
//! trying each. The only thing that reaches a NameNode are these calls and those of `changes`. All but one here only ask; that
//! one ([`NameNode::report_bad`]) tells what any reader may tell.

use prost::Message;
use tokio::sync::Mutex;

use crate::HdfsError;
use crate::proto::Empty;
use crate::proto::names::{
    AskDatanodes, AskListing, AskLocations, AskSafeMode, BadBlocks, BlockKeys, DatanodeInfo, Datanodes,
    Defaults, ExportedKeys, FileInfo, FileStatus, Listing, ListingPage, LocatedBlock, LocatedBlocks,
    Locations, NamespaceInfo, OfPath, SafeMode, ServerDefaults, Version,
};
use crate::rpc::{Connection, Reply};
use crate::transfer::UNIT_BYTES;

pub(crate) const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const NAMENODE: &str = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol";

/// What the names of calls begin with that only ask about files.
const ASKS: [&str; 1] = ["get"];

/// Default port of a NameNode's calls.
const PORT: u16 = 8020;

/// The active NameNode of a cluster.
pub struct NameNode {
    addresses: Vec<String>,
    user: String,
    /// The open connection, which of the addresses it goes to, and its protocol.
    open: Mutex<Option<(usize, &'static str, Connection)>>,
}

impl NameNode {
    /// NameNodes at `addresses` (`host[:port]`, several separated by commas), called as `user`. Nothing is sent yet.
    ///
    /// # Errors
    /// `Unsupported` for an address that is none.
    pub fn at(addresses: &str, user: &str) -> Result<Self, HdfsError> {
        let addresses: Vec<String> = addresses.split(',').map(address).collect::<Result<_, _>>()?;
        Ok(Self { addresses, user: user.to_owned(), open: Mutex::new(None) })
    }

    /// The user that calls are made as.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// A file or folder; `None` if there is none.
    ///
    /// # Errors
    /// As every call: `Unreachable`, `Protocol`, `Standby`, `Denied`, `Refused`, `Unsupported` for Kerberos.
    pub async fn file(&self, path: &str) -> Result<Option<FileStatus>, HdfsError> {
        let info: FileInfo = self.call(CLIENT, "getFileInfo", path, &OfPath { path: path.into() }).await?;
        Ok(info.status)
    }

    /// Where the bytes of a file are, with tokens to read them.
    ///
    /// # Errors
    /// `NotFound`; those of every call.
    pub async fn locations(&self, path: &str) -> Result<LocatedBlocks, HdfsError> {
        self.locations_of(path, 0..i64::MAX as u64).await
    }

    /// The same of the blocks with these bytes.
    ///
    /// # Errors
    /// As [`NameNode::locations`].
    pub(crate) async fn locations_of(
        &self,
        path: &str,
        range: std::ops::Range<u64>,
    ) -> Result<LocatedBlocks, HdfsError> {
        let ask = AskLocations { path: path.into(), offset: range.start, len: range.end - range.start };
        let found: Locations = self.call(CLIENT, "getBlockLocations", path, &ask).await?;
        found.blocks.ok_or_else(|| HdfsError::NotFound(path.into()))
    }

    /// A page of a folder after the name `after`, with the places of the files' blocks but without tokens.
    ///
    /// # Errors
    /// `NotFound`; those of every call.
    pub async fn listing(&self, path: &str, after: Vec<u8>) -> Result<ListingPage, HdfsError> {
        let ask = AskListing { path: path.into(), after, with_locations: true };
        let page: Listing = self.call(CLIENT, "getListing", path, &ask).await?;
        page.page.ok_or_else(|| HdfsError::NotFound(path.into()))
    }

    /// The DataNodes that the NameNode counts as live (of which it may have heard nothing for ten minutes).
    ///
    /// # Errors
    /// `Denied` for all but superusers; those of every call.
    pub async fn live_datanodes(&self) -> Result<Vec<DatanodeInfo>, HdfsError> {
        self.datanodes(2).await
    }

    /// The DataNodes that it counts as dead.
    ///
    /// # Errors
    /// As [`NameNode::live_datanodes`].
    pub(crate) async fn dead_datanodes(&self) -> Result<Vec<DatanodeInfo>, HdfsError> {
        self.datanodes(3).await
    }

    /// Those in maintenance, or on their way there, alive or not.
    ///
    /// # Errors
    /// As [`NameNode::live_datanodes`].
    pub(crate) async fn in_maintenance(&self) -> Result<Vec<DatanodeInfo>, HdfsError> {
        let mut found = self.datanodes(5).await?;
        found.append(&mut self.datanodes(6).await?);
        found.retain(DatanodeInfo::in_maintenance);
        Ok(found)
    }

    async fn datanodes(&self, kind: i32) -> Result<Vec<DatanodeInfo>, HdfsError> {
        let found: Datanodes =
            self.call(CLIENT, "getDatanodeReport", "list DataNodes", &AskDatanodes { kind }).await?;
        Ok(found.datanodes)
    }

    /// Whether the active NameNode is in safe mode.
    ///
    /// # Errors
    /// Those of every call.
    pub async fn safe_mode(&self) -> Result<bool, HdfsError> {
        let ask = AskSafeMode { action: 3, checked: Some(true) };
        let mode: SafeMode = self.call(CLIENT, "setSafeMode", "ask for safe mode", &ask).await?;
        Ok(mode.on)
    }

    /// Tells that the copies of a block on these DataNodes are bad, as readers do that find wrong bytes. The NameNode no longer counts
    /// them, and has them deleted when there are enough others.
    ///
    /// # Errors
    /// Those of every call.
    pub(crate) async fn report_bad(&self, block: LocatedBlock) -> Result<(), HdfsError> {
        let told = BadBlocks { blocks: vec![block] };
        let _: Empty = self.call(CLIENT, "reportBadBlocks", "report a bad block", &told).await?;
        Ok(())
    }

    /// Refuses a cluster whose DataNodes want encrypted connections.
    ///
    /// # Errors
    /// `Unsupported`; those of every call.
    pub async fn check_transfer(&self) -> Result<(), HdfsError> {
        match self.defaults().await?.encrypted_transfer {
            Some(true) => Err(HdfsError::Unsupported {
                what: "data transfer of this HDFS".into(),
                expected: "unencrypted".into(),
                got: "dfs.encrypt.data.transfer=true, which Kintsu does not speak".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Bytes under one checksum in what clients write that are set to nothing else.
    ///
    /// # Errors
    /// Those of every call.
    pub(crate) async fn unit_bytes(&self) -> Result<usize, HdfsError> {
        Ok(self.defaults().await?.unit_bytes.map_or(UNIT_BYTES, |unit| unit as usize))
    }

    async fn defaults(&self) -> Result<Defaults, HdfsError> {
        let found: ServerDefaults =
            self.call(CLIENT, "getServerDefaults", "ask for defaults", &Empty {}).await?;
        Ok(found.defaults)
    }

    /// The block pool, and the release of Hadoop.
    ///
    /// # Errors
    /// `Denied` for all but superusers; those of every call.
    pub async fn namespace(&self) -> Result<NamespaceInfo, HdfsError> {
        let found: Version = self.call(NAMENODE, "versionRequest", "ask for the version", &Empty {}).await?;
        Ok(found.info)
    }

    /// The keys that sign block tokens; `None` where tokens are off.
    ///
    /// # Errors
    /// `Denied` for all but superusers; those of every call.
    pub async fn block_keys(&self) -> Result<Option<ExportedKeys>, HdfsError> {
        let found: BlockKeys =
            self.call(NAMENODE, "getBlockKeys", "ask for the keys of block tokens", &Empty {}).await?;
        Ok(found.keys.filter(|keys| keys.enabled))
    }

    /// Calls the NameNode that answered last, and the others if it is in standby or away.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        protocol: &'static str,
        method: &'static str,
        what: &str,
        arguments: &impl Message,
    ) -> Result<A, HdfsError> {
        let mut open = self.open.lock().await;
        let first = open.as_ref().map_or(0, |(at, ..)| *at);
        let (mut standbys, mut last) = (Vec::new(), None);
        // Twice the number of addresses: a connection that was open may have been closed by now.
        for turn in 0..=self.addresses.len() * 2 {
            let at = (first + turn.saturating_sub(1)) % self.addresses.len();
            let usable = |held: &(usize, &'static str, Connection)| held.0 == at && held.1 == protocol;
            let mut connection = match open.take().filter(usable) {
                Some((_, _, connection)) => connection,
                None if turn == 0 => continue,
                None => match Connection::open(&self.addresses[at], &self.user, protocol).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        last = Some(error);
                        continue;
                    }
                },
            };
            match connection.call(protocol, method, arguments).await {
                Ok(Reply::Answer(bytes)) => {
                    let answer = A::decode(&bytes[..]).map_err(|e| {
                        connection.strange(&format!("to {method} an answer that cannot be read ({e})"))
                    });
                    *open = Some((at, protocol, connection));
                    return answer;
                }
                Ok(Reply::Exception(class, message)) if class.ends_with("StandbyException") => {
                    standbys.push(format!("{} ({message})", self.addresses[at]));
                }
                Ok(Reply::Exception(class, message)) => {
                    return Err(self.exception(method, what, class, message));
                }
                Err(error @ HdfsError::Protocol { .. }) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        standbys.sort();
        standbys.dedup();
        match last {
            Some(error) if standbys.is_empty() => Err(error),
            Some(error) => Err(HdfsError::Standby(format!("{}; {error}", standbys.join(", ")))),
            None => Err(HdfsError::Standby(standbys.join(", "))),
        }
    }

    fn exception(&self, call: &'static str, what: &str, class: String, message: String) -> HdfsError {
        // The class may be within another one: `org.apache.hadoop.ipc.RPC$VersionMismatch`.
        let kind = class.rsplit(['.', '$']).next().unwrap_or_default();
        match kind {
            "AccessControlException" if message.contains("SIMPLE authentication is not enabled") => {
                HdfsError::Unsupported {
                    what: "authentication of this HDFS".into(),
                    expected: "SIMPLE".into(),
                    got: "Kerberos, which Kintsu does not speak".into(),
                }
            }
            "AccessControlException" => {
                let superuser = message.to_ascii_lowercase().contains("superuser");
                HdfsError::Denied {
                    user: self.user.clone(),
                    what: match (superuser, ASKS.iter().any(|start| call.starts_with(start))) {
                        (true, _) => what.into(),
                        (false, true) => format!("read {what}"),
                        (false, false) => format!("write {what}"),
                    },
                    message,
                    advice: match superuser {
                        true => {
                            "; this needs a superuser of HDFS: run it as the user that runs the NameNode, or with --user"
                        }
                        false => "",
                    },
                }
            }
            "FileNotFoundException" => HdfsError::NotFound(what.into()),
            "RpcNoSuchMethodException" | "RpcNoSuchProtocolException" | "VersionMismatch" => {
                HdfsError::Unsupported {
                    what: "version of this NameNode".into(),
                    expected: "Hadoop 3".into(),
                    got: format!("{kind}: {message}"),
                }
            }
            _ => HdfsError::Refused { call, exception: kind.to_owned(), message },
        }
    }
}

/// `host:port` with the default port.
fn address(text: &str) -> Result<String, HdfsError> {
    let text = text.trim();
    let text = text.strip_prefix("hdfs://").unwrap_or(text).trim_end_matches('/');
    let invalid = || HdfsError::Unsupported {
        what: "address of a NameNode".into(),
        expected: "HOST:PORT, or HOST for port 8020".into(),
        got: format!("{text:?}"),
    };
    match text.rsplit_once(':') {
        _ if text.is_empty() || text.contains(char::is_whitespace) => Err(invalid()),
        None => Ok(format!("{text}:{PORT}")),
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        Some(_) => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_usual_port_and_nonsense_is_refused() {
        let namenode = NameNode::at("a, b:9000,hdfs://c:1/", "u").unwrap();
        assert_eq!(namenode.addresses, ["a:8020", "b:9000", "c:1"]);
        for wrong in ["", "a:", "a:b", ":1", "a b", "a:70000", "a,,b"] {
            let Err(error) = NameNode::at(wrong, "u") else { panic!("{wrong:?}") };
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_release_comes_with_the_pool() {
        // As Hadoop 3.4.3 writes it: revision, a field without use, pool, storage, release.
        let info = b"\x0a\x01r\x10\x00\x1a\x04BP-1\x22\x00\x2a\x053.4.3";
        let answer = [&[0x0a, info.len() as u8], &info[..]].concat();
        let namenode = crate::fake::namenode(&[("versionRequest", answer)]);
        let NamespaceInfo { pool, release } = namenode.namespace().await.unwrap();
        assert_eq!((pool.as_str(), release.as_str()), ("BP-1", "3.4.3"));
    }
}
