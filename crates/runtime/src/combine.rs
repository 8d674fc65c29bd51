//! `Compute`: linear combinations of slices. Zero slices are left out; where possible the output overwrites an
//! input.

use std::collections::HashMap;

use kintsu_dag::NodeId;
use kintsu_kernel::{Kernel, KernelError, Mode};
use kintsu_wire::message::{Fault, FaultKind};

use crate::fault::fault;
use crate::sample::{Difference, Sampler, difference};
use crate::slice::{Buffer, View};

/// Kernels for different patterns of zero inputs that are kept.
const MOST_KERNELS: usize = 32;

/// Why a combination was not made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CombineError {
    /// Lengths do not fit.
    Refused(KernelError),
    /// A second computation of a sample gave another result.
    Wrong(Difference),
}

impl CombineError {
    /// The fault of the node where this happened.
    pub fn fault(&self, node: NodeId) -> Fault {
        match self {
            Self::Refused(error) => fault(FaultKind::Invalid, node, error.to_string()),
            Self::Wrong(Difference { output, at, expected, got }) => {
                let what = format!("byte {at} of output {output} of a combination, computed twice");
                fault(FaultKind::Mismatch, node, format!("{what}: expected {expected:#04x}, got {got:#04x}"))
            }
        }
    }
}

impl From<KernelError> for CombineError {
    fn from(error: KernelError) -> Self {
        Self::Refused(error)
    }
}

/// One `Compute` task: its slots and its prepared kernels.
#[derive(Debug)]
pub(crate) struct Combine {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    coefs: Vec<u8>,
    /// Inputs, by position, that the output may overwrite: their coefficient is 1 and no later task uses them.
    spare: Vec<usize>,
    whole: Kernel,
    /// Kernels of fewer columns; the key says which inputs are there.
    partial: HashMap<Vec<bool>, Kernel>,
    /// Checks samples of the output.
    sampler: Sampler,
}

impl Combine {
    /// `outputs.len() x inputs.len()` coefficients, row-major.
    ///
    /// # Errors
    /// When the number of coefficients is wrong.
    pub fn new(inputs: Vec<usize>, outputs: Vec<usize>, coefs: &[u8]) -> Result<Self, KernelError> {
        let whole = Kernel::new(outputs.len(), inputs.len(), coefs)?;
        let sampler = Sampler::new(outputs.len(), inputs.len(), coefs)?;
        let coefs = coefs.to_vec();
        Ok(Self { inputs, outputs, coefs, spare: Vec::new(), whole, partial: HashMap::new(), sampler })
    }

    /// The slots of the inputs.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Lets a single output take the place of an input whose slot is one of these, which nothing uses after
    /// this task.
    pub fn may_overwrite(&mut self, unused: impl Fn(usize) -> bool) {
        if self.outputs.len() == 1 {
            let fits = |i: &usize| self.coefs[*i] == 1 && unused(self.inputs[*i]);
            self.spare = (0..self.inputs.len()).filter(fits).collect();
        }
    }

    /// Fills the output slots with combinations of the input slots, all `len` bytes long.
    ///
    /// # Errors
    /// When a length is wrong, or a second computation of a sample gives another result; the outputs are empty
    /// then.
    pub fn run(&mut self, slots: &mut [Option<View<'_>>], len: usize) -> Result<(), CombineError> {
        if let ([input], [output], [1]) = (&self.inputs[..], &self.outputs[..], &self.coefs[..]) {
            slots[*output] = slots[*input].as_mut().map(View::share);
            return Ok(());
        }
        let Some(range) = self.sampler.next(len) else { return Ok(self.make(slots, len)?) };
        // Before an input is overwritten.
        let expected = self.sampler.expected(&self.data(slots), &range)?;
        self.make(slots, len)?;
        let made = self.outputs.iter().map(|slot| slots[*slot].as_ref().and_then(View::data));
        let Some(wrong) = difference(&expected, made, &range) else { return Ok(()) };
        self.outputs.iter().for_each(|slot| slots[*slot] = None);
        Err(CombineError::Wrong(wrong))
    }

    /// The bytes of each input that has any.
    fn data<'a>(&self, slots: &'a [Option<View<'_>>]) -> Vec<Option<&'a [u8]>> {
        self.inputs.iter().map(|slot| slots[*slot].as_ref().and_then(View::data)).collect()
    }

    fn make(&mut self, slots: &mut [Option<View<'_>>], len: usize) -> Result<(), KernelError> {
        let own = |i: &&usize| matches!(slots[self.inputs[**i]], Some(View::Own(_)));
        if let Some(place) = self.spare.iter().find(own).copied() {
            return self.add_to(place, slots);
        }
        let mut made: Vec<Buffer> = Vec::with_capacity(self.outputs.len());
        {
            let data = self.data(slots);
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
            // The input at `place` was taken out.
            let data = self.data(slots);
            let inputs: Vec<&[u8]> = data.iter().copied().flatten().collect();
            if !inputs.is_empty() {
                let kernel = Self::partial(&mut self.partial, 1, &self.coefs, &data)?;
                kernel.apply(&inputs, &mut [&mut sum[..]], Mode::Accumulate)?;
            }
        }
        slots[self.outputs[0]] = sum;
        Ok(())
    }

    /// Makes it compute wrong bytes, as a wrong kernel would.
    #[cfg(test)]
    pub fn spoil(&mut self) {
        let mut others = self.coefs.clone();
        others[0] ^= 64;
        self.whole = Kernel::new(self.outputs.len(), self.inputs.len(), &others).expect("the same shape");
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
            // The output overwrites neither an input that is still needed nor one with another coefficient.
            assert_eq!(slots[2].as_ref().unwrap().data(), (!zero).then_some(&[9; 100][..]));
            assert_eq!(slots[0].is_none(), own[0]);
            assert_eq!(slots[1].is_none(), own[1] && !own[0]);
        }
    }

    #[test]
    fn a_kernel_that_computes_something_else_is_found_before_anything_leaves() {
        let byte = |value: u8| Some(Slice::Data(vec![value; 5000].into()));
        for wrong in [[1, 2, 3, 7, 0, 9], [1, 2, 4, 7, 0, 8]] {
            let mut combine = Combine::new(vec![0, 1, 2], vec![3, 4], &[1, 2, 3, 7, 0, 8]).unwrap();
            combine.whole = Kernel::new(2, 3, &wrong).unwrap();
            let mut slots = vec![byte(3), byte(80), byte(9), None, None];
            let error = combine.run(&mut slots, 5000).unwrap_err();
            assert!(matches!(error, CombineError::Wrong(_)), "{error:?}");
            assert!(slots[3].is_none() && slots[4].is_none());
            let fault = error.fault(NodeId(7));
            assert_eq!((fault.kind, fault.node), (FaultKind::Mismatch, NodeId(7)));
            assert!(fault.detail.contains("expected 0x"), "{fault}");
        }
    }

    #[test]
    fn a_sum_in_the_place_of_an_input_is_looked_at_too() {
        for spoilt in [false, true] {
            let mut combine = Combine::new(vec![0, 1], vec![2], &[1, 5]).unwrap();
            combine.may_overwrite(|_| true);
            if spoilt {
                combine.partial.insert(vec![false, true], Kernel::new(1, 1, &[4]).unwrap());
            }
            let own = Slice::Own(BytesMut::from(&[3; 900][..]));
            let mut slots = vec![Some(own), Some(Slice::Data(vec![80; 900].into())), None];
            assert_eq!(combine.run(&mut slots, 900).is_err(), spoilt);
        }
    }

    #[test]
    fn a_wrong_number_of_coefficients_is_refused() {
        assert!(Combine::new(vec![0, 1], vec![2], &[1]).is_err());
    }
}
