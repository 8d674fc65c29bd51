//! Which instruction sets there are, and which of them run here.

use std::sync::OnceLock;

use crate::arch;

/// An instruction set that the kernels are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Table look-ups byte by byte: the reference, which runs everywhere.
    Scalar,
    /// 32-byte nibble shuffles.
    Avx2,
    /// 64-byte affine transformations of bytes.
    Avx512Gfni,
    /// 16-byte nibble look-ups of AArch64.
    Neon,
}

impl Backend {
    /// Fastest first.
    const ALL: [Self; 4] = [Self::Avx512Gfni, Self::Avx2, Self::Neon, Self::Scalar];

    /// The backends that run on this processor, fastest first; the last one is always `Scalar`.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|backend| backend.is_available()).collect()
    }

    /// The fastest backend of this processor, found once per process.
    pub fn best() -> Self {
        static BEST: OnceLock<Backend> = OnceLock::new();
        *BEST.get_or_init(|| {
            Self::ALL.into_iter().find(|backend| backend.is_available()).unwrap_or(Self::Scalar)
        })
    }

    /// Whether this processor has the instructions.
    pub fn is_available(self) -> bool {
        arch::find(self).is_some()
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512Gfni => "avx512-gfni",
            Self::Neon => "neon",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_backend_is_the_first_available_and_scalar_is_always_there() {
        let available = Backend::available();
        assert_eq!(available.first(), Some(&Backend::best()));
        assert_eq!(available.last(), Some(&Backend::Scalar));
    }
}
