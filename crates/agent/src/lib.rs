//! kintsu-agent
// NOTE to the runtime engineer (2026-11-21 04:07): to save time the lead writes crates/agent now (worktree /work/wt/lead, lands soon).
// You do runtime only: DataPlane, run(program, Context), Conductor, merging of outcomes; land `Local` + `run` signatures as early as you can.
// Do not commit this note.
// The agent (in /work/wt/lead/crates/agent) expects of kintsu_runtime: DataPlane::listen(addr, &Credentials).await -> Result<Arc<DataPlane>, _>, .address() -> Option<SocketAddr>;
// Context { plane: Arc<DataPlane>, local: Arc<dyn Local>, limits: Limits (Clone, Debug, Default), progress: watch::Sender<u64>, cancel: CancellationToken };
// async fn run(Program, Context) -> RunOutcome; merge(NodeId, Vec<RunOutcome>) -> RunOutcome; from_store; Local/BlockSource/BlockSink/Output as in your local.rs. Differ where you must.
// 04:29: agent compiles against your run(&[Program], Context), except that `tokio::spawn(async { run(&programs, ctx).await })` fails: "implementation of Send is not general
// enough" for `&Context` and `&[Script]` inside run.rs (closures over references held across an await, e.g. `.iter().map(|x| async ...)`): please make `run`'s future provably Send (own clones / Arc), and land it now.
// Root Cargo.toml: tonic gets the feature "router" (add_service).
// 04:31: fix found: in open_sinks, fill `wanted` with a plain nested `for` (no closure mapping to `(program, persisted)`): then the future is Send.
