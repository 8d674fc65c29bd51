//! klauspost/reedsolomon (Go), with one goroutine; built by `scripts/rivals.sh`.
#![allow(unsafe_code)] // calls a C interface; each block says why this is sound

use std::ffi::{c_int, c_longlong};

use libloading::Library;

use super::burst::interleave;
use super::rivals::{Apply, Rival, library};

const FILE: &str = "libklauspost.so";
/// Seconds for measuring what a call costs.
const CROSSED: f64 = 0.1;

type New = unsafe extern "C" fn(cols: c_int, rows: c_int, coefs: *const u8) -> c_int;
type Nothing = unsafe extern "C" fn();
type Run = unsafe extern "C" fn(number: c_int, blocks: *mut *mut u8, length: c_longlong) -> c_int;

/// The functions that are compared against.
pub(super) struct Klauspost {
    file: String,
    /// Seconds of a call from C into Go.
    crossing: f64,
    new: New,
    run: Run,
    _library: Library,
}

impl Klauspost {
    /// Loads the library.
    ///
    /// # Errors
    /// When it is not there, or lacks a function.
    pub(super) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: loading starts Go's runtime and nothing else; the types are those of `rivals/klauspost/main.go`; the
        // functions live as long as the library, kept beside them.
        unsafe {
            let (file, library) = library(FILE)?;
            let (new, run) = (*library.get::<New>(b"klaus_new\0")?, *library.get::<Run>(b"klaus_apply\0")?);
            let nothing = *library.get::<Nothing>(b"klaus_nothing\0")?;
            // Calls a nanosecond, so that their inverse is in nanoseconds.
            let crossing = interleave(1, CROSSED, 1, |_| nothing())[0].median;
            Ok(Self { file, crossing: 1e-9 / crossing, new, run, _library: library })
        }
    }
}

impl Rival for Klauspost {
    fn name(&self) -> &'static str {
        "klauspost"
    }

    fn file(&self) -> &str {
        &self.file
    }

    fn crossing(&self) -> f64 {
        self.crossing
    }

    fn prepare<'a>(&'a self, rows: usize, cols: usize, coefs: &[u8]) -> Option<Apply<'a>> {
        assert_eq!(coefs.len(), rows * cols, "a full matrix");
        // SAFETY: it reads rows * cols coefficients.
        let number = unsafe { (self.new)(cols as c_int, rows as c_int, coefs.as_ptr()) };
        let mut blocks: Vec<*mut u8> = Vec::new();
        let apply = move |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            let len = inputs[0].len();
            assert_eq!((inputs.len(), outputs.len()), (cols, rows), "the matrix's shape");
            assert!(inputs.iter().all(|i| i.len() == len) && outputs.iter().all(|o| o.len() == len));
            blocks.clear();
            blocks.extend(inputs.iter().map(|i| i.as_ptr().cast_mut()));
            blocks.extend(outputs.iter_mut().map(|o| o.as_mut_ptr()));
            // SAFETY: shapes and lengths were just checked; inputs are only read.
            let code = unsafe { (self.run)(number, blocks.as_mut_ptr(), len as c_longlong) };
            assert_eq!(code, 0, "klauspost/reedsolomon refuses");
        };
        (number >= 0).then(|| Box::new(apply) as Apply<'a>)
    }
}
