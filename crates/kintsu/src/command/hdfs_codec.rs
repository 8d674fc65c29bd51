//! `kintsu hdfs codec`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_code::USER;
use kintsu_hdfs::{Codec, SERVICES, policies_xml};
use serde_json::json;

use super::code::resolve;
use super::{Context, job};
use crate::cli::Endpoint;
use crate::output;

/// Writes policies and sources for these codes into `out`. The cluster is contacted only for registered codes.
pub async fn run(codes: &[String], out: &Path, endpoint: &Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let mut codecs: Vec<Codec> = Vec::new();
    let client = endpoint.client().await?;
    let context = Context { client, json, following: job::Following::default() };
    for name in codes {
        let codec = Codec::of(&*resolve(name, &context).await?)?;
        anyhow::ensure!(
            codecs.iter().all(|other| other.name != codec.name),
            "codec {}: expected each code once, got it twice",
            codec.name
        );
        codecs.push(codec);
    }
    write(out, "policies.xml", &policies_xml(&codecs))?;
    let mut services = String::new();
    for (number, codec) in codecs.iter().enumerate() {
        let (class, source) = codec.java(number);
        write(out, &format!("src/{}.java", class.replace('.', "/")), &source)?;
        services = services + &class + "\n";
    }
    write(out, &format!("src/{SERVICES}"), &services)?;
    if json {
        output::json(&codecs.iter().map(report).collect::<Vec<_>>())?;
    } else {
        codecs.iter().try_for_each(show)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(out: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = out.join(name);
    let folder = path.parent().unwrap_or(out);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Sets of lost blocks that HDFS's own readers, and the code, survive: one entry for each number of blocks.
fn survived(codec: &Codec) -> Vec<(usize, usize, usize)> {
    (1..=codec.code.n() - codec.code.k()).map(|lost| codec.survives(lost)).collect()
}

fn report(codec: &Codec) -> serde_json::Value {
    let code = codec.code.name().strip_prefix(USER).unwrap_or_default();
    let sets: Vec<_> = survived(codec)
        .into_iter()
        .map(|(stock, kintsu, all)| json!({"stock": stock, "kintsu": kintsu, "all": all}))
        .collect();
    json!({"codec": code, "policy": codec.policy(), "survives": sets})
}

fn show(codec: &Codec) -> anyhow::Result<()> {
    output::line(&format!("codec {}, policy {}", codec.name, codec.policy()))?;
    for (lost, (stock, kintsu, all)) in survived(codec).into_iter().enumerate() {
        output::line(&format!(
            "  of {all} sets of {} lost blocks HDFS's own clients read around {stock}, Kintsu around {kintsu}",
            lost + 1
        ))?;
    }
    Ok(())
}
