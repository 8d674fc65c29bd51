//! `Compute`: linear combinations of slices, with zero slices left out.

use std::collections::HashMap;

use kintsu_kernel::{Kernel, KernelError, Mode};

use crate::slice::{Buffer, View};

/// Kernels for different patterns of zero inputs that are kept.
const MOST_KERNELS: usize = 32;

/// One `Compute` task: its slots and its prepared kernels.
#[derive(Debug)]
pub(crate) struct Combine {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    coefs: Vec<u8>,
    whole: Kernel,
    /// Kernels of fewer columns, by which inputs are not zero.
    partial: HashMap<Vec<bool>, Kernel>,
}

impl Combine {
    /// `outputs.len() x inputs.len()` coefficients, row-major.
    ///
    /// # Errors
    /// When there are more coefficients or fewer.
    pub fn new(inputs: Vec<usize>, outputs: Vec<usize>, coefs: &[u8]) -> Result<Self, KernelError> {
        let whole = Kernel::new(outputs.len(), inputs.len(), coefs)?;
        Ok(Self { inputs, outputs, coefs: coefs.to_vec(), whole, partial: HashMap::new() })
    }

    /// The slots of the inputs.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Fills the output slots with combinations of the input slots, all `len` bytes long.
    ///
    /// # Errors
    /// When a length is another.
    pub fn run(&mut self, slots: &mut [Option<View<'_>>], len: usize) -> Result<(), KernelError> {
        if let ([input], [output], [1]) = (&self.inputs[..], &self.outputs[..], &self.coefs[..]) {
            slots[*output] = slots[*input].clone();
            return Ok(());
        }
        let mut made: Vec<Buffer> = Vec::with_capacity(self.outputs.len());
        {
            let data: Vec<Option<&[u8]>> =
                self.inputs.iter().map(|slot| slots[*slot].as_ref().and_then(View::data)).collect();
            if data.iter().any(Option::is_some) {
                made.extend(self.outputs.iter().map(|_| Buffer::take(len)));
                let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|buffer| &mut buffer[..]).collect();
                let inputs: Vec<&[u8]> = data.iter().copied().flatten().collect();
                let kernel = match inputs.len() == data.len() {
                    true => &self.whole,
                    false => Self::partial(&mut self.partial, self.outputs.len(), &self.coefs, &data)?,
                };
                kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
            }
        }
        let mut made = made.into_iter();
        for slot in &self.outputs {
            slots[*slot] = Some(made.next().map_or(View::Zero(len), View::of));
        }
        Ok(())
    }

    /// The kernel of the columns whose inputs are there.
    fn partial<'a>(
        kept: &'a mut HashMap<Vec<bool>, Kernel>,
        rows: usize,
        coefs: &[u8],
        data: &[Option<&[u8]>],
    ) -> Result<&'a Kernel, KernelError> {
        let there: Vec<bool> = data.iter().map(Option::is_some).collect();
        if kept.len() >= MOST_KERNELS && !kept.contains_key(&there) {
            kept.clear();
        }
        match kept.entry(there) {
            std::collections::hash_map::Entry::Occupied(kernel) => Ok(kernel.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                let cols = place.key().iter().filter(|there| **there).count();
                let wanted = place.key().iter().cycle().zip(coefs);
                let coefs: Vec<u8> = wanted.filter(|(there, _)| **there).map(|(_, coef)| *coef).collect();
                let kernel = Kernel::new(rows, cols, &coefs)?;
                Ok(place.insert(kernel))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Slice;
    use kintsu_algebra as gf;

    #[test]
    fn zero_inputs_count_as_zeros_in_every_pattern() {
        let coefs = [1, 2, 3, 7, 0, 9];
        let mut combine = Combine::new(vec![0, 1, 2], vec![3, 4], &coefs).unwrap();
        for pattern in 0..8u8 {
            let value = |input: usize| if pattern >> input & 1 == 1 { 17 * input as u8 + 5 } else { 0 };
            let slice = |input| match value(input) {
                0 => Slice::Zero(100),
                byte => {
                    let mut buffer = Buffer::take(100);
                    buffer.fill(byte);
                    Slice::of(buffer)
                }
            };
            let mut slots = vec![Some(slice(0)), Some(slice(1)), Some(slice(2)), None, None];
            combine.run(&mut slots, 100).unwrap();
            for row in 0..2 {
                let expected = (0..3).fold(0, |sum, i| sum ^ gf::mul(coefs[row * 3 + i], value(i)));
                match slots[3 + row].as_ref().unwrap() {
                    Slice::Zero(len) => assert_eq!((*len, pattern), (100, 0)),
                    data => assert_eq!(data.data().unwrap(), [expected; 100]),
                }
            }
        }
    }

    #[test]
    fn a_wrong_number_of_coefficients_is_refused() {
        assert!(Combine::new(vec![0, 1], vec![2], &[1]).is_err());
    }
}
