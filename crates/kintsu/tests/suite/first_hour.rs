//! The tutorial is what its script prints.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_tutorial_is_what_its_script_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = Command::new("bash")
        .arg(root.join("scripts/first-hour.sh"))
        .env("KINTSU_BIN", env!("CARGO_BIN_EXE_kintsu"))
        .output()
        .unwrap();
    let said = String::from_utf8(script.stdout).unwrap();
    assert!(script.status.success(), "{}\nafter:\n{said}", String::from_utf8_lossy(&script.stderr));
    let page = std::fs::read_to_string(root.join("docs/first-hour.md")).unwrap();
    let differs = page.lines().zip(said.lines()).enumerate().find(|(_, (page, said))| page != said);
    assert!(
        page == said,
        "docs/first-hour.md differs from what scripts/first-hour.sh prints; if that is meant: scripts/first-hour.sh > \
         docs/first-hour.md\nfirst difference (line from 0, page, script): {differs:?}"
    );
}
