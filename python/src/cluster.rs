//! A cluster as Python sees it: each call of the client library as a blocking method.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kintsu_client::{Client, ClientError, FileSource, GetReport, Jobs, Options, PutOptions, ReadAt};
use kintsu_code::Definition;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::Tls;
use kintsu_wire::message::{Encoding, JobEvent, JobReport, NodeAction, RepairTarget};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::code::ProvedCode;
use crate::convert::python;
use crate::error::{cluster, invalid, of_code};
use crate::wait::wait;

/// A connection to a coordinator, opened by the first call.
#[pyclass(frozen, module = "kintsu._kintsu")]
pub(crate) struct Cluster {
    client: Client,
    runtime: Runtime,
}

/// Bytes that Python holds, read without a copy.
struct Held(PyBackedBytes);

impl ReadAt for Held {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.0.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// What a put stores: a file, or bytes.
#[derive(FromPyObject)]
enum Source {
    Bytes(PyBackedBytes),
    File(PathBuf),
}

impl Source {
    fn open(self) -> Result<Arc<dyn ReadAt>, ClientError> {
        match self {
            Self::Bytes(bytes) => Ok(Arc::new(Held(bytes))),
            Self::File(path) => Ok(Arc::new(FileSource::open(path)?)),
        }
    }
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (endpoint, token, tls))]
    fn new(py: Python<'_>, endpoint: &str, token: Option<String>, tls: Option<PathBuf>) -> PyResult<Self> {
        let open = |dir: PathBuf| {
            let expected = "a folder with ca.pem, cert.pem and key.pem, as `kintsu ca issue` makes it";
            Tls::open(&dir).map_err(|error| invalid("tls", expected, error))
        };
        let tls = tls.map(open).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("kintsu")
            .build()
            .map_err(|e| cluster(format!("the client's threads could not be started: {e}")))?;
        let options = Options { token, tls, ..Options::default() };
        let client = wait(py, &runtime, Client::connect(endpoint, options))?;
        Ok(Self { client, runtime })
    }

    #[pyo3(signature = (source, name, code, offline, block_bytes, cell_bytes, replace))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn put<'py>(
        &self,
        py: Python<'py>,
        source: Source,
        name: &str,
        code: &str,
        offline: bool,
        block_bytes: Option<u64>,
        cell_bytes: Option<u32>,
        replace: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let encoding = if offline { Encoding::Offline } else { Encoding::Online };
        let options = PutOptions { encoding, block_bytes, cell_bytes, replace, ..PutOptions::new(code) };
        let work = async { self.client.put(source.open()?, name, options, |_, _| ()).await };
        python(py, &wait(py, &self.runtime, work)?)
    }

    /// Registers a code under a name, `user:NAME`; false if the same code was registered before.
    fn register(&self, py: Python<'_>, code: &ProvedCode, name: String) -> PyResult<bool> {
        let definition = match &code.definition {
            Some(definition) => Definition { name, ..definition.clone() },
            None => Definition::of(&*code.code, name).map_err(of_code)?,
        };
        wait(py, &self.runtime, self.client.register_code(&definition))
    }

    /// A registered code, proved here.
    fn code(&self, py: Python<'_>, name: &str) -> PyResult<ProvedCode> {
        let definition = wait(py, &self.runtime, self.client.find_code(name))?;
        py.detach(|| ProvedCode::of(definition))
    }

    fn codes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &wait(py, &self.runtime, self.client.codes())?)
    }

    fn remove_code(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        wait(py, &self.runtime, self.client.remove_code(name))
    }

    /// The bytes of an object, or those of a range, and the cost of the read.
    #[pyo3(signature = (name, range))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        range: Option<(u64, u64)>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyAny>)> {
        let range = range.map(|(start, end)| start..end);
        let (bytes, report) = wait(py, &self.runtime, async {
            let mut bytes = Vec::new();
            let report = self.client.get(name, range, &mut bytes, |_, _| ()).await?;
            Ok((bytes, report))
        })?;
        Ok((PyBytes::new(py, &bytes), read_report(py, &report)?))
    }

    /// Writes an object to a file, which is written completely or not at all.
    #[pyo3(signature = (name, path, range))]
    fn read_to<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        path: PathBuf,
        range: Option<(u64, u64)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let range = range.map(|(start, end)| start..end);
        let aside = Aside::beside(&path)?;
        let report = wait(py, &self.runtime, async {
            let mut file = tokio::fs::File::create(&aside.0).await?;
            let report = self.client.get(name, range, &mut file, |_, _| ()).await?;
            tokio::fs::rename(&aside.0, &path).await?;
            Ok(report)
        })?;
        read_report(py, &report)
    }

    fn remove<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        python(py, &wait(py, &self.runtime, self.client.remove(name))?)
    }

    /// A page of the objects whose names have this prefix.
    #[pyo3(signature = (prefix, after, limit))]
    fn page<'py>(
        &self,
        py: Python<'py>,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        python(py, &wait(py, &self.runtime, self.client.list(prefix, after, limit))?)
    }

    fn stat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let view = wait(py, &self.runtime, async {
            let stripes = self.client.info(name).await?.stripes;
            self.client.stripes(name, 0, stripes).await
        })?;
        python(py, &json!({ "object": view.object, "stripes": view.stripes }))
    }

    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &wait(py, &self.runtime, self.client.nodes())?.nodes)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &wait(py, &self.runtime, self.client.status())?)
    }

    fn encode<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.follow(py, self.client.encode(name))
    }

    #[pyo3(signature = (node, name, method, slice_bytes))]
    fn repair<'py>(
        &self,
        py: Python<'py>,
        node: Option<u32>,
        name: Option<String>,
        method: &str,
        slice_bytes: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let target = match (node, name) {
            (Some(node), None) => RepairTarget::Node(NodeId(node)),
            (None, Some(name)) => RepairTarget::Object(name),
            (None, None) => RepairTarget::All,
            _ => return Err(invalid("repair", "a node, a name, or neither for all", "both")),
        };
        let parsed = method.parse::<Method>();
        let method = parsed.map_err(|e| invalid("repair", "a method that exists", e))?;
        self.follow(py, self.client.repair(target, method, slice_bytes))
    }

    #[pyo3(signature = (node))]
    fn scrub<'py>(&self, py: Python<'py>, node: Option<u32>) -> PyResult<Bound<'py, PyAny>> {
        self.follow(py, self.client.scrub(node.map(NodeId)))
    }

    /// `stop`, `start`, `wipe`, `drain` or `undrain`.
    fn command_node<'py>(&self, py: Python<'py>, node: u32, action: &str) -> PyResult<Bound<'py, PyAny>> {
        let action: NodeAction = serde_json::from_value(json!(action))
            .map_err(|_| invalid("command to a node", "stop, start, wipe, drain or undrain", action))?;
        self.follow(py, self.client.command_node(NodeId(node), action))
    }

    /// Waits until the last messages are sent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, &self.runtime, async {
            self.client.close().await;
            Ok(())
        })
    }
}

impl Cluster {
    /// The report of a job, after it has ended; an error if not everything could be done.
    fn follow<'py>(
        &self,
        py: Python<'py>,
        call: impl Future<Output = Result<Jobs, ClientError>> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let report = wait(py, &self.runtime, async { ended(call.await?).await })?;
        if !report.failed.is_empty() {
            return Err(cluster(format!("not everything was done: {}", report.failed.join("; "))));
        }
        python(py, &report)
    }
}

async fn ended(mut jobs: Jobs) -> Result<JobReport, ClientError> {
    while let Some(event) = jobs.next().await? {
        if let JobEvent::Ended(report) = event {
            return Ok(report);
        }
    }
    Err(ClientError::Interrupted("expected the report of a job, got the end of its events".into()))
}

fn read_report<'py>(py: Python<'py>, report: &GetReport) -> PyResult<Bound<'py, PyAny>> {
    python(
        py,
        &json!({
            "bytes": report.bytes, "bytes_read": report.bytes_read,
            "degraded_stripes": report.degraded_stripes, "replanned": report.replanned,
            "slow_nodes": report.slow.iter().map(|node| node.0).collect::<Vec<_>>(),
        }),
    )
}

/// A temporary file beside the final path; removed if it is not renamed.
struct Aside(PathBuf);

impl Aside {
    fn beside(path: &std::path::Path) -> PyResult<Self> {
        let name = path.file_name().ok_or_else(|| invalid("path", "a file to write", path.display()))?;
        let aside = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        Ok(Self(path.with_file_name(aside)))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After the rename there is nothing left to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}
