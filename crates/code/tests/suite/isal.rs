//! Our matrices against those of the real ISA-L, where it is installed.
#![allow(unsafe_code)]

use std::io::Write;

use kintsu_code::parse;

type Generate = unsafe extern "C" fn(*mut u8, i32, i32);

#[test]
fn generators_equal_those_of_isal() {
    // SAFETY: a system library without initialisers of concern.
    let library = match unsafe { libloading::Library::new("libisal.so.2") } {
        Ok(library) => library,
        Err(error) => {
            return drop(writeln!(std::io::stderr(), "SKIPPED: no libisal.so.2 to compare with ({error})"));
        }
    };
    let mut compared = 0;
    for (symbol, suffix) in [("gf_gen_cauchy1_matrix", ""), ("gf_gen_rs_matrix", ",matrix=isal")] {
        // SAFETY: both are `void f(unsigned char *a, int m, int k)`, writing m * k bytes.
        let generate = unsafe { library.get::<Generate>(symbol.as_bytes()) }.unwrap();
        for (n, k) in (1..=20).flat_map(|k| (1..=6).map(move |m| (k + m, k))).chain([(255, 200), (200, 197)])
        {
            let Ok(code) = parse(&format!("rs:n={n},k={k}{suffix}")) else { continue };
            let mut theirs = vec![0u8; n * k];
            // SAFETY: the buffer has n * k bytes.
            unsafe { generate(theirs.as_mut_ptr(), n as i32, k as i32) };
            assert_eq!(code.generator().as_slice(), theirs, "{}", code.name());
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared} matrices compared");
    let _ = writeln!(std::io::stderr(), "COMPARED: generators of RS with those of ISA-L (libisal.so.2)");
}
