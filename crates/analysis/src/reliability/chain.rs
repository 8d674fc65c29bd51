//! An absorbing Markov chain in continuous time, and the mean time until it is absorbed.
//!
//! States are eliminated one by one; each elimination adds, multiplies and divides, and never subtracts (the idea
//! of Grassmann, Taksar and Heyman). So no precision is lost although repairs are many orders of magnitude faster
//! than failures. Gaussian elimination on the generator matrix would lose precision by cancellation.

/// Transitions between states and into loss, as rates.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    states: usize,
    /// Rate from i to j at `i * states + j`; the diagonal is not used.
    rates: Vec<f64>,
    /// Rate from each state into loss.
    loss: Vec<f64>,
}

impl Chain {
    /// A chain of at least one state, without transitions. It starts in state 0.
    pub(crate) fn new(states: usize) -> Self {
        Self { states, rates: vec![0.0; states * states], loss: vec![0.0; states] }
    }

    /// Adds a transition between two states at a rate that is not negative.
    pub(crate) fn add(&mut self, from: usize, to: usize, rate: f64) {
        self.rates[from * self.states + to] += rate;
    }

    /// Adds a transition into loss at a rate that is not negative.
    pub(crate) fn add_loss(&mut self, from: usize, rate: f64) {
        self.loss[from] += rate;
    }

    /// The mean time from state 0 until loss; infinite when loss may never happen. Cost: states^3 / 3.
    ///
    /// Before and after each step, the mean time x of each remaining state i satisfies
    /// `x_i * (sum_j rate_ij + loss_i) = earned_i + sum_j rate_ij x_j`.
    pub(crate) fn time_to_loss(mut self) -> f64 {
        let mut earned = vec![1.0; self.states];
        for last in (1..self.states).rev() {
            let (head, tail) = self.rates.split_at_mut(last * self.states);
            let out = &tail[..last];
            let leaving = out.iter().sum::<f64>() + self.loss[last];
            for i in 0..last {
                let row = &mut head[i * self.states..(i + 1) * self.states];
                if row[last] == 0.0 {
                    continue;
                }
                if leaving == 0.0 {
                    earned[i] = f64::INFINITY;
                    continue;
                }
                let share = row[last] / leaving;
                row.iter_mut().zip(out).for_each(|(rate, onward)| *rate += share * onward);
                self.loss[i] += share * self.loss[last];
                earned[i] += share * earned[last];
            }
        }
        earned[0] / self.loss[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The time to loss of a linear chain with failures at rates `fail`, and repairs at rates `repair` from state
    /// 1 on.
    fn line(fail: &[f64], repair: &[f64]) -> f64 {
        let mut chain = Chain::new(fail.len());
        for (i, &rate) in fail.iter().enumerate() {
            if i + 1 < fail.len() { chain.add(i, i + 1, rate) } else { chain.add_loss(i, rate) }
        }
        (1..fail.len()).for_each(|i| chain.add(i, i - 1, repair[i - 1]));
        chain.time_to_loss()
    }

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-13
    }

    #[test]
    fn two_and_three_replicas_have_their_closed_forms() {
        for (l, m) in [(1e-5, 3.0), (0.3, 0.2), (1e-9, 1e6)] {
            assert!(close(line(&[2.0 * l, l], &[m]), (3.0 * l + m) / (2.0 * l * l)));
            let three = (11.0 * l * l + 7.0 * l * m + 2.0 * m * m) / (6.0 * l * l * l);
            assert!(close(line(&[3.0 * l, 2.0 * l, l], &[m, 2.0 * m]), three));
        }
    }

    #[test]
    fn no_digit_is_lost_at_ratios_beyond_floating_point() {
        // The leading term of a chain of 12 failures that are 1e8 times rarer than repairs; the other terms are
        // below 1e-7 of it.
        let time = line(&[1.0; 12], &[1e8; 11]);
        assert!((time / 1e88 - 1.0).abs() < 2e-7 && time > 1e88, "{time:e}");
    }

    #[test]
    fn a_chain_that_may_avoid_loss_takes_infinitely_long() {
        assert_eq!(line(&[1.0, 0.0], &[1.0]), f64::INFINITY);
        let mut trap = Chain::new(2);
        trap.add(0, 1, 1.0);
        trap.add_loss(0, 1.0);
        assert_eq!(trap.time_to_loss(), f64::INFINITY);
    }

    /// By Cramer's rule in whole numbers.
    fn exact(rates: &[[i128; 4]; 3]) -> f64 {
        let mut m = [[0i128; 3]; 3];
        for i in 0..3 {
            for j in (0..3).filter(|&j| j != i) {
                m[i][j] = -rates[i][j];
                m[i][i] += rates[i][j];
            }
            m[i][i] += rates[i][3];
        }
        let det = |m: [[i128; 3]; 3]| {
            m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
                - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
                + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
        };
        let mut ones = m;
        ones.iter_mut().for_each(|row| row[0] = 1);
        det(ones) as f64 / det(m) as f64
    }

    proptest! {
        #[test]
        fn any_three_states_agree_with_exact_arithmetic(
            rates in proptest::array::uniform3(proptest::array::uniform4(1i128..1_000_000_000)),
        ) {
            let mut chain = Chain::new(3);
            for (i, row) in rates.iter().enumerate() {
                (0..3).filter(|&j| j != i).for_each(|j| chain.add(i, j, row[j] as f64));
                chain.add_loss(i, row[3] as f64);
            }
            prop_assert!(close(chain.time_to_loss(), exact(&rates)));
        }
    }
}
