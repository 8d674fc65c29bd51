//! Arithmetic of GF(2^8) on single elements, by logarithm tables made at compile time.

/// The field's reduction polynomial, x^8 + x^4 + x^3 + x^2 + 1.
pub const POLYNOMIAL: u16 = 0x11D;

struct Tables {
    exp: [u8; 512],
    log: [u8; 256],
}

const TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut exp = [0u8; 512];
    let mut log = [0u8; 256];
    let mut x: u16 = 1;
    let mut i = 0;
    while i < 255 {
        exp[i] = x as u8;
        exp[i + 255] = x as u8;
        log[x as usize] = i as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        i += 1;
    }
    Tables { exp, log }
}

/// The sum of two elements, which is also their difference.
#[inline]
pub const fn add(a: u8, b: u8) -> u8 {
    a ^ b
}

/// The product of two elements.
#[inline]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    TABLES.exp[TABLES.log[a as usize] as usize + TABLES.log[b as usize] as usize]
}

/// The multiplicative inverse; `None` for zero.
#[inline]
pub const fn inv(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(TABLES.exp[255 - TABLES.log[a as usize] as usize]) }
}

/// The quotient `a / b`; `None` when `b` is zero.
#[inline]
pub const fn div(a: u8, b: u8) -> Option<u8> {
    match inv(b) {
        Some(b) => Some(mul(a, b)),
        None => None,
    }
}

/// All products, by factor: `PRODUCTS[c][x] == c * x`.
pub static PRODUCTS: [[u8; 256]; 256] = products();

const fn products() -> [[u8; 256]; 256] {
    let mut products = [[0u8; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b = 0;
        while b < 256 {
            products[a][b] = mul(a as u8, b as u8);
            b += 1;
        }
        a += 1;
    }
    products
}

/// [`add_scaled`] skips this many elements at once when all are zero.
const STRETCH: usize = 64;

/// `to += coef * from`, for rows of coefficients of one length. Runs of zeros in `from` are skipped: the rows of
/// codes with sub-blocks have thousands of elements, most of them zero.
///
/// # Panics
/// When the lengths differ.
pub fn add_scaled(to: &mut [u8], from: &[u8], coef: u8) {
    assert_eq!(to.len(), from.len(), "rows of one length");
    if coef == 0 {
        return;
    }
    let products = &PRODUCTS[usize::from(coef)];
    for (to, from) in to.chunks_mut(STRETCH).zip(from.chunks(STRETCH)) {
        if from == [0; STRETCH] {
            continue;
        }
        to.iter_mut().zip(from).for_each(|(t, &f)| *t ^= products[usize::from(f)]);
    }
}

/// The generator 2 to the power `e` (any `e`; the exponent is taken modulo 255).
#[inline]
pub const fn exp(e: usize) -> u8 {
    TABLES.exp[e % 255]
}

/// The discrete logarithm to base 2; `None` for zero.
#[inline]
pub const fn log(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(TABLES.log[a as usize]) }
}

/// `a` to the power `e`, with `pow(0, 0) == 1`.
pub const fn pow(a: u8, e: usize) -> u8 {
    if e == 0 {
        return 1;
    }
    match log(a) {
        None => 0,
        Some(l) => exp((l as usize * (e % 255)) % 255),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shift-and-add multiplication directly from the polynomial: the oracle of the tests.
    fn slow_mul(a: u8, b: u8) -> u8 {
        let (mut a, mut product) = (u16::from(a), 0u16);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= POLYNOMIAL;
            }
        }
        product as u8
    }

    #[test]
    fn multiplication_equals_the_polynomial_product_for_all_pairs() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn field_laws_hold_for_all_elements() {
        for a in 0..=255u8 {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, 0), 0);
            if let Some(i) = inv(a) {
                assert_eq!(mul(a, i), 1);
            } else {
                assert_eq!(a, 0);
            }
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), mul(b, a));
                if b != 0 {
                    assert_eq!(mul(div(a, b).unwrap(), b), a);
                }
                for c in 0..=255u8 {
                    assert_eq!(mul(a, add(b, c)), add(mul(a, b), mul(a, c)));
                    assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c));
                }
            }
        }
    }

    #[test]
    fn two_generates_the_group_and_powers_agree_with_repeated_products() {
        let mut seen = [false; 256];
        for e in 0..255 {
            assert!(!std::mem::replace(&mut seen[exp(e) as usize], true));
            assert_eq!(log(exp(e)), Some(e as u8));
        }
        for a in 0..=255 {
            let mut product = 1;
            for e in 0..600 {
                assert_eq!(pow(a, e), product, "{a}^{e}");
                product = mul(product, a);
            }
        }
    }

    #[test]
    fn scaled_rows_are_added_element_by_element_zeros_or_not() {
        for length in [0, 1, 10, 63, 64, 65, 200] {
            for zeros in [0..0, 0..64, 64..128, 5..190] {
                let from: Vec<u8> =
                    (0..length).map(|i| if zeros.contains(&i) { 0 } else { (i * 37 + 11) as u8 }).collect();
                let before: Vec<u8> = (0..length).map(|i| (i * 91 + 5) as u8).collect();
                for coef in [0, 1, 2, 0x1d, 255] {
                    let mut to = before.clone();
                    add_scaled(&mut to, &from, coef);
                    let expected = before.iter().zip(&from).map(|(&t, &f)| t ^ slow_mul(coef, f));
                    assert!(to.into_iter().eq(expected), "{coef} times {from:?}");
                }
            }
        }
    }
}
