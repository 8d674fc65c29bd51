//! Encryption zones, with a key in a file.

use std::path::Path;

use super::{Hdfs, script, text};

/// The name of the key.
const KEY: &str = "key";

fn provider(dir: &Path) -> String {
    format!("jceks://file{}", dir.join("keys.jceks").display())
}

/// The settings of an HDFS with this key.
pub fn settings(dir: &Path) -> [String; 1] {
    [format!("hadoop.security.key.provider.path={}", provider(dir))]
}

/// Makes the key. A NameNode reads it when it starts.
pub fn make_key(dir: &Path) {
    let shell = "org.apache.hadoop.crypto.key.KeyShell";
    let args = [shell, "create", KEY, "-size", "128", "-provider", &provider(dir)];
    let out = script().arg("client").arg(dir).args(args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
}

impl Hdfs {
    /// Makes a folder that is an encryption zone.
    pub fn make_zone(&self, path: &str) {
        self.stock(&["fs", "-mkdir", path]);
        let admin = "org.apache.hadoop.hdfs.tools.CryptoAdmin";
        self.stock(&[admin, "-createZone", "-keyName", KEY, "-path", path]);
    }
}
