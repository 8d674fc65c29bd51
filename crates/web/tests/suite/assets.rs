//! The built page is what npm builds from its sources.

use std::path::Path;
use std::process::Command;

use crate::npm;

#[test]
fn what_is_kept_is_what_npm_builds() {
    let Some(sources) = npm::sources() else { return };
    let run = |what: &str, command: &mut Command| {
        let done = command.current_dir(sources).output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&said));
    };
    run("the types of the page", Command::new("npm").args(["run", "--silent", "check"]));
    let built = tempfile::tempdir().unwrap();
    run("the build of the page", Command::new("node").arg("build.mjs").arg(built.path()));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist");
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&kept), names(built.path()));
    for name in names(&kept) {
        let same =
            std::fs::read(kept.join(&name)).unwrap() == std::fs::read(built.path().join(&name)).unwrap();
        assert!(same, "dist/{} is not what npm builds: run scripts/page.sh build", name.display());
    }
}
