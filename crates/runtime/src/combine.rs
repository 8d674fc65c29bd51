//! `Compute`: linear combinations of slices, with zero slices left out, and where it can be in the place of an input.

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
    /// Inputs, by position, that may be overwritten with the output: coefficient 1, and not used any more.
    spare: Vec<usize>,
    whole: Kernel,
    /// Kernels of fewer columns, by which inputs are added.
    partial: HashMap<Vec<bool>, Kernel>,
}

impl Combine {
    /// `outputs.len() x inputs.len()` coefficients, row-major.
    ///
    /// # Errors
    /// When there are more coefficients or fewer.
    pub fn new(inputs: Vec<usize>, outputs: Vec<usize>, coefs: &[u8]) -> Result<Self, KernelError> {
        let whole = Kernel::new(outputs.len(), inputs.len(), coefs)?;
        let coefs = coefs.to_vec();
        Ok(Self { inputs, outputs, coefs, spare: Vec::new(), whole, partial: HashMap::new() })
    }

    /// The slots of the inputs.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Lets a single output take the place of an input whose slot is one of these, which nothing uses after this task.
    pub fn may_overwrite(&mut self, unused: impl Fn(usize) -> bool) {
        if self.outputs.len() == 1 {
            let fits = |i: &usize| self.coefs[*i] == 1 && unused(self.inputs[*i]);
            self.spare = (0..self.inputs.len()).filter(fits).collect();
        }
    }

    /// Fills the output slots with combinations of the input slots, all `len` bytes long.
    ///
    /// # Errors
    /// When a length is another.
    pub fn run(&mut self, slots: &mut [Option<View<'_>>], len: usize) -> Result<(), KernelError> {
        if let ([input], [output], [1]) = (&self.inputs[..], &self.outputs[..], &self.coefs[..]) {
            slots[*output] = slots[*input].as_mut().map(View::share);
            return Ok(());
        }
        let own = |i: &&usize| matches!(slots[self.inputs[**i]], Some(View::Own(_)));
        if let Some(place) = self.spare.iter().find(own).copied() {
            return self.add_to(place, slots);
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

    /// Adds all other inputs to the one at `place`, which becomes the output.
    fn add_to(&mut self, place: usize, slots: &mut [Option<View<'_>>]) -> Result<(), KernelError> {
        let mut sum = slots[self.inputs[place]].take();
        if let Some(View::Own(sum)) = &mut sum {
            // The one at `place` is not there any more.
            let data: Vec<Option<&[u8]>> =
                self.inputs.iter().map(|slot| slots[*slot].as_ref().and_then(View::data)).collect();
            let inputs: Vec<&[u8]> = data.iter().copied().flatten().collect();
            if !inputs.is_empty() {
                let kernel = Self::partial(&mut self.partial, 1, &self.coefs, &data)?;
                kernel.apply(&inputs, &mut [&mut sum[..]], Mode::Accumulate)?;
            }
        }
        slots[self.outputs[0]] = sum;
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
    use bytes::BytesMut;
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
    fn an_input_that_nobody_needs_any_more_becomes_the_sum() {
        for (zero, own) in
            [(false, [true, true]), (true, [true, false]), (false, [false, true]), (false, [false; 2])]
        {
            let mut combine = Combine::new(vec![0, 1, 2], vec![3], &[1, 1, 5]).unwrap();
            combine.may_overwrite(|slot| slot == 0 || slot == 1);
            let slice = |value: u8, own: bool| match own {
                true => Slice::Own(BytesMut::from(&[value; 100][..])),
                false => Slice::Data(vec![value; 100].into()),
            };
            let third = if zero { Slice::Zero(100) } else { slice(9, true) };
            let mut slots = vec![Some(slice(3, own[0])), Some(slice(80, own[1])), Some(third), None];
            combine.run(&mut slots, 100).unwrap();
            let expected = 3 ^ 80 ^ if zero { 0 } else { gf::mul(5, 9) };
            assert_eq!(slots[3].as_ref().unwrap().data().unwrap(), [expected; 100]);
            // Not in place of what is needed, nor of what has another coefficient.
            assert_eq!(slots[2].as_ref().unwrap().data(), (!zero).then_some(&[9; 100][..]));
            assert_eq!(slots[0].is_none(), own[0]);
            assert_eq!(slots[1].is_none(), own[1] && !own[0]);
        }
    }

    #[test]
    fn a_wrong_number_of_coefficients_is_refused() {
        assert!(Combine::new(vec![0, 1], vec![2], &[1]).is_err());
    }
}
