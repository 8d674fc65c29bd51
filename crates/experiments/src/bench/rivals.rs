//! Others' kernels, which are compared with ours: libraries that are loaded if they are there.

use std::path::PathBuf;

use libloading::Library;

/// Applies a prepared matrix: inputs, outputs.
pub(super) type Apply<'a> = Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]]) + 'a>;

/// Somebody else's kernel.
pub(super) trait Rival {
    /// What it is called in tables.
    fn name(&self) -> &'static str;

    /// The file that was loaded.
    fn file(&self) -> &str;

    /// Seconds that a call takes without any work, which are not the kernel's.
    fn crossing(&self) -> f64 {
        0.0
    }

    /// Prepares `coefs`, `rows x cols`, row-major. `None` if it refuses.
    fn prepare<'a>(&'a self, rows: usize, cols: usize, coefs: &[u8]) -> Option<Apply<'a>>;
}

/// Loads a library that `scripts/rivals.sh` has built (folder `rivals` beside the running program's folder), or the
/// installed one of this name. Returns also which file that was.
///
/// # Safety
/// As [`Library::new`].
#[allow(unsafe_code)] // the callers say why loading is sound
pub(super) unsafe fn library(file: &str) -> Result<(String, Library), libloading::Error> {
    let program = std::env::current_exe().unwrap_or_default();
    let built: Option<PathBuf> =
        program.ancestors().map(|folder| folder.join("rivals").join(file)).find(|path| path.is_file());
    let name = built.map_or_else(|| file.to_owned(), |path| path.display().to_string());
    // SAFETY: promised by the caller.
    unsafe { Library::new(&name) }.map(|library| (name, library))
}
