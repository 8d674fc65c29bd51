//! Intel's ISA-L, loaded if it is there: built by `scripts/rivals.sh`, or installed.
#![allow(unsafe_code)] // calls a C library; each block says why this is sound

use std::ffi::c_int;

use kintsu_kernel::Backend;
use libloading::Library;

use super::rivals::{Apply, Rival, library};

/// The file name for the dynamic linker.
const FILE: &str = "libisal.so.2";

type InitTables = unsafe extern "C" fn(k: c_int, rows: c_int, coefs: *mut u8, tables: *mut u8);
type EncodeData = unsafe extern "C" fn(
    len: c_int,
    k: c_int,
    rows: c_int,
    tables: *mut u8,
    inputs: *mut *mut u8,
    outputs: *mut *mut u8,
);
type CauchyMatrix = unsafe extern "C" fn(matrix: *mut u8, n: c_int, k: c_int);

/// The functions that are compared against.
pub(super) struct IsaL {
    file: String,
    /// Whether it is 2.31 or later, the first with kernels for GFNI.
    recent: bool,
    init_tables: InitTables,
    encode_data: EncodeData,
    cauchy_matrix: CauchyMatrix,
    _library: Library,
}

/// A coefficient matrix in ISA-L's form.
struct Tables {
    rows: usize,
    cols: usize,
    bytes: Vec<u8>,
    /// Pointers to the inputs and to the outputs of a call.
    from: Vec<*mut u8>,
    to: Vec<*mut u8>,
}

impl IsaL {
    /// Loads the library; for AVX2, the functions for that alone.
    ///
    /// # Errors
    /// When it is not there, or lacks a function.
    pub(super) fn load(backend: Backend) -> Result<Self, libloading::Error> {
        let encode: &[u8] =
            if backend == Backend::Avx2 { b"ec_encode_data_avx2\0" } else { b"ec_encode_data\0" };
        // SAFETY: the library has no initialisers that matter; the types are those of its
        // header `erasure_code.h`; the functions live as long as the library, kept beside them.
        unsafe {
            let (file, library) = library(FILE)?;
            // Since 2.31 the usual tables suit the best instruction set, and those for AVX2 have a function of their own.
            let base = library.get::<InitTables>(b"ec_init_tables_base\0").ok().map(|base| *base);
            let init_tables = match base.filter(|_| backend == Backend::Avx2) {
                Some(base) => base,
                None => *library.get::<InitTables>(b"ec_init_tables\0")?,
            };
            Ok(Self {
                file,
                recent: base.is_some(),
                init_tables,
                encode_data: *library.get::<EncodeData>(encode)?,
                cauchy_matrix: *library.get::<CauchyMatrix>(b"gf_gen_cauchy1_matrix\0")?,
                _library: library,
            })
        }
    }

    /// Whether it is at its best with these instructions.
    pub(super) fn is_at_its_best(&self, backend: Backend) -> bool {
        self.recent || backend != Backend::Avx512Gfni
    }

    /// The `n x k` generator with Cauchy parity rows.
    pub(super) fn cauchy(&self, n: usize, k: usize) -> Vec<u8> {
        let mut matrix = vec![0; n * k];
        // SAFETY: it writes n * k bytes.
        unsafe { (self.cauchy_matrix)(matrix.as_mut_ptr(), n as c_int, k as c_int) };
        matrix
    }

    /// Prepares `coefs`, `rows x cols`, row-major.
    fn tables(&self, rows: usize, cols: usize, coefs: &[u8]) -> Tables {
        assert_eq!(coefs.len(), rows * cols, "a full matrix");
        let (mut coefs, mut bytes) = (coefs.to_vec(), vec![0; 32 * rows * cols]);
        // SAFETY: it reads rows * cols coefficients and writes 32 bytes for each.
        unsafe {
            (self.init_tables)(cols as c_int, rows as c_int, coefs.as_mut_ptr(), bytes.as_mut_ptr());
        }
        Tables { rows, cols, bytes, from: Vec::new(), to: Vec::new() }
    }

    /// `outputs = matrix * inputs`.
    fn run(&self, tables: &mut Tables, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let len = inputs[0].len();
        assert_eq!((inputs.len(), outputs.len()), (tables.cols, tables.rows), "the matrix's shape");
        assert!(inputs.iter().all(|i| i.len() == len) && outputs.iter().all(|o| o.len() == len));
        tables.from.clear();
        tables.from.extend(inputs.iter().map(|i| i.as_ptr().cast_mut()));
        tables.to.clear();
        tables.to.extend(outputs.iter_mut().map(|o| o.as_mut_ptr()));
        // SAFETY: shapes and lengths were just checked; inputs are read only, whatever the
        // missing `const` says.
        unsafe {
            (self.encode_data)(
                len as c_int,
                tables.cols as c_int,
                tables.rows as c_int,
                tables.bytes.as_mut_ptr(),
                tables.from.as_mut_ptr(),
                tables.to.as_mut_ptr(),
            );
        }
    }
}

impl Rival for IsaL {
    fn name(&self) -> &'static str {
        "ISA-L"
    }

    fn file(&self) -> &str {
        &self.file
    }

    fn prepare<'a>(&'a self, rows: usize, cols: usize, coefs: &[u8]) -> Option<Apply<'a>> {
        let mut tables = self.tables(rows, cols, coefs);
        Some(Box::new(move |inputs, outputs| self.run(&mut tables, inputs, outputs)))
    }
}
