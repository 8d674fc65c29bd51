//! The page's sources with the packages of their lockfile, where npm can get them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// A folder with the sources and their packages; `None` if npm is missing or cannot get them, which is said.
pub fn sources() -> Option<&'static Path> {
    static SOURCES: OnceLock<Option<PathBuf>> = OnceLock::new();
    SOURCES
        .get_or_init(|| {
            prepared().map_err(|why| skipped(&format!("no packages of npm for the page ({why})"))).ok()
        })
        .as_deref()
}

/// Says what is not tested.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

fn prepared() -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let lock = std::fs::read(from.join("package-lock.json")).map_err(|e| e.to_string())?;
    let name: String = Sha256::digest(&lock).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    copy(&from, &folder).map_err(|e| format!("cannot copy the sources: {e}"))?;
    let done = folder.join("node_modules/.kintsu-done");
    if !done.exists() {
        let npm = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--silent"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("npm: {e}"))?;
        if !npm.status.success() {
            return Err(format!("npm ci: {}", String::from_utf8_lossy(&npm.stderr).trim()));
        }
        std::fs::write(done, "").map_err(|e| e.to_string())?;
    }
    Ok(folder)
}

/// Copies a folder without its packages.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == "node_modules" => {}
            true => copy(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
