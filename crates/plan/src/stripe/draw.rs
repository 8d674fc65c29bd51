//! Deterministic choices that look random: a mixing function of a seed.

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA'14): a bijection that spreads every bit of its input.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number that depends on all of `seed`, `stream` and `index`; the same for the same three.
pub fn draw(seed: u64, stream: u64, index: u64) -> u64 {
    let step =
        |state: u64, by: u64| mix(state.wrapping_add(by.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    step(step(mix(seed), stream), index)
}
