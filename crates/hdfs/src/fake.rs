//! A NameNode and a DataNode for tests, as far as a test lets them speak: the NameNode has an answer for some calls, the DataNode
//! has some blocks. Both answer until the tests end.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use prost::Message;

use crate::proto::names::{DatanodeId, DatanodeInfo};
use crate::proto::rpc::{MethodHeader, RequestHeader, ResponseHeader};
use crate::proto::transfer::{Answer, Checksum, PacketHeader, ReadBlock, ReadInfo};
use crate::transfer::{CRC32C, UNIT_BYTES};
use crate::{Holder, NameNode};

/// Calls `serve` for each connection to a new listener, each on a thread of its own.
fn listen(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, serve) = (listener.local_addr().unwrap(), Arc::new(serve));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            // Who has what it wants may leave at any time.
            std::thread::spawn(move || _ = serve(stream));
        }
    });
    address
}

/// A NameNode with these answers by the names of calls; it refuses all others.
pub(crate) fn namenode(answers: &[(&'static str, Vec<u8>)]) -> NameNode {
    let answers: BTreeMap<&str, Vec<u8>> = answers.iter().cloned().collect();
    namenode_that(move |method, _| answers.get(method).cloned())
}

/// A NameNode whose answer to each call is made from its name and from how many of that name there were before; it refuses those without.
pub(crate) fn namenode_that(
    answers: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> NameNode {
    namenode_that_reads(move |method, _, before| answers(method, before))
}

/// The same, made from the arguments too.
pub(crate) fn namenode_that_reads(
    answers: impl Fn(&str, &[u8], usize) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> NameNode {
    let counts: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let address = listen(move |mut stream| {
        let frame = |stream: &mut TcpStream| -> std::io::Result<Vec<u8>> {
            let mut len = [0; 4];
            stream.read_exact(&mut len)?;
            let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
            stream.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        stream.read_exact(&mut [0; 7])?;
        frame(&mut stream)?;
        loop {
            let call = frame(&mut stream)?;
            let mut rest = &call[..];
            let header = RequestHeader::decode_length_delimited(&mut rest).unwrap();
            let method = MethodHeader::decode_length_delimited(&mut rest).unwrap().method;
            let before = {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry(method.clone()).or_default();
                std::mem::replace(count, *count + 1)
            };
            prost::decode_length_delimiter(&mut rest).unwrap();
            let answer = answers(&method, rest, before);
            let head = ResponseHeader {
                call_id: header.call_id as u32,
                status: i32::from(answer.is_none()),
                server_ipc_version: None,
                exception: answer.is_none().then(|| "NoAnswer".into()),
                message: answer.is_none().then_some(method),
            };
            let mut bytes = head.encode_length_delimited_to_vec();
            if let Some(answer) = answer {
                prost::encode_length_delimiter(answer.len(), &mut bytes).unwrap();
                bytes.extend(answer);
            }
            stream.write_all(&(bytes.len() as u32).to_be_bytes())?;
            stream.write_all(&bytes)?;
        }
    });
    NameNode::at(&address.to_string(), "tester").unwrap()
}

/// A DataNode that sends blocks.
pub(crate) struct Datanode {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Datanode {
    /// Has these blocks, by their ids in HDFS. The last checksum of each in `rotten` is wrong.
    pub(crate) fn with(blocks: BTreeMap<u64, Vec<u8>>, rotten: Vec<u64>) -> Self {
        let sent: Arc<AtomicU64> = Arc::default();
        let counted = sent.clone();
        let address = listen(move |stream| {
            let (mut input, mut output) = (BufReader::new(stream.try_clone()?), stream);
            let mut head = [0; 3];
            input.read_exact(&mut head)?;
            assert_eq!(head, [0, 28, 81], "version 28, a read");
            let ask = ReadBlock::decode(&message(&mut input)?[..]).unwrap();
            let (id, unit) = (ask.header.base.block.id, UNIT_BYTES);
            let bytes = &blocks[&id];
            let from = ask.offset as usize / unit * unit;
            let checksum = Checksum { kind: CRC32C, unit_bytes: unit as u32 };
            let read = Some(ReadInfo { checksum, first_byte: from as u64 });
            output.write_all(&Answer { status: 0, read, message: None }.encode_length_delimited_to_vec())?;
            let mut at = from;
            for (number, data) in bytes[from..].chunks(unit * 4).chain([&[][..]]).enumerate() {
                let end = at + data.len();
                let mut sums: Vec<u8> =
                    data.chunks(unit).flat_map(|unit| crc_fast::crc32_iscsi(unit).to_be_bytes()).collect();
                if end == bytes.len() && rotten.contains(&id) {
                    sums.last_mut().into_iter().for_each(|sum| *sum ^= 1);
                }
                let header = PacketHeader {
                    offset: at as i64,
                    number: number as i64,
                    last: data.is_empty(),
                    data_bytes: data.len() as i32,
                    durable: None,
                };
                let header = header.encode_to_vec();
                output.write_all(&((data.len() + sums.len() + 4) as u32).to_be_bytes())?;
                output.write_all(&(header.len() as u16).to_be_bytes())?;
                output.write_all(&[&header[..], &sums, data].concat())?;
                counted.fetch_add(data.len() as u64, Ordering::Relaxed);
                at = end;
            }
            // Until the reader leaves: closed with unread bytes the connection would be reset.
            input.read_to_end(&mut Vec::new()).map(|_| ())
        });
        Self { address, sent }
    }

    /// As the NameNode lists it.
    pub(crate) fn info(&self) -> DatanodeInfo {
        let (ip, transfer_port) = (self.address.ip().to_string(), self.address.port().into());
        let id = DatanodeId { ip, transfer_port, ..DatanodeId::default() };
        DatanodeInfo { id, ..DatanodeInfo::default() }
    }

    /// As the holder of a block.
    pub(crate) fn holder(&self) -> Holder {
        Holder { datanode: Arc::new(self.info()), token: None }
    }

    /// Bytes of blocks that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A message after its length.
fn message(input: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let (mut len, mut shift) = (0, 0);
    loop {
        let mut byte = [0];
        input.read_exact(&mut byte)?;
        len |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}
