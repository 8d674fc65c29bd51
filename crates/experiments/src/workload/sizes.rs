//! Distributions of lengths and of times between arrivals.

use rand::RngExt;

use super::Random;

/// A distribution of non-negative numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// Exponential, with this mean.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// Log-normal, drawn again outside the limits.
    LogNormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// The least and the largest value.
        limits: (f64, f64),
    },
    /// Generalized extreme value: `F(x) = exp(-(1 + k (x - mu) / sigma)^(-1/k))`.
    ExtremeValue {
        /// Location mu.
        location: f64,
        /// Scale sigma.
        scale: f64,
        /// Shape k, not 0.
        shape: f64,
    },
    /// Generalized Pareto: `F(x) = 1 - (1 + k (x - theta) / sigma)^(-1/k)`.
    Pareto {
        /// Location theta.
        location: f64,
        /// Scale sigma.
        scale: f64,
        /// Shape k, not 0.
        shape: f64,
    },
}

impl Law {
    /// The next value.
    pub fn next(self, random: &mut Random) -> f64 {
        // In (0, 1], so that its logarithm is finite.
        let mut part = || 1.0 - random.random::<f64>();
        match self {
            Self::Exponential { mean } => -mean * part().ln(),
            Self::LogNormal { mu, sigma, limits: (least, most) } => loop {
                // Box and Muller.
                let normal = (-2.0 * part().ln()).sqrt() * (std::f64::consts::TAU * part()).cos();
                let value = (mu + sigma * normal).exp();
                if (least..=most).contains(&value) {
                    return value;
                }
            },
            Self::ExtremeValue { location, scale, shape } => {
                // 1 has no quantile: the largest value below it has.
                let part = part().min(1.0 - f64::EPSILON);
                location + scale * ((-part.ln()).powf(-shape) - 1.0) / shape
            }
            Self::Pareto { location, scale, shape } => location + scale * (part().powf(-shape) - 1.0) / shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const DRAWS: usize = 100_000;

    fn drawn(law: Law) -> Vec<f64> {
        let mut random = Random::seed_from_u64(3);
        let mut values: Vec<f64> = (0..DRAWS).map(|_| law.next(&mut random)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The largest difference between the share of values below each value and the distribution function, which in one
    /// of ten thousand samples of the distribution exceeds 2.23 divided by the root of the sample's size (Kolmogorov).
    fn agrees(law: Law, function: impl Fn(f64) -> f64) {
        let values = drawn(law);
        let off = |(i, x): (usize, &f64)| (function(*x) - i as f64 / DRAWS as f64).abs();
        let most = values.iter().enumerate().map(off).fold(0.0, f64::max);
        assert!(most <= 2.23 / (DRAWS as f64).sqrt(), "{law:?}: {most}");
    }

    #[test]
    fn values_have_their_distribution() {
        agrees(Law::Exponential { mean: 20_134.0 }, |x| 1.0 - (-x / 20_134.0).exp());
        let (location, scale, shape) = (30.7984, 8.20449, 0.078688);
        agrees(Law::ExtremeValue { location, scale, shape }, |x| {
            (-(1.0 + shape * (x - location) / scale).powf(-1.0 / shape)).exp()
        });
        let (location, scale, shape) = (15.0, 214.476, 0.348238);
        agrees(Law::Pareto { location, scale, shape }, |x| {
            1.0 - (1.0 + shape * (x - location) / scale).powf(-1.0 / shape)
        });
    }

    #[test]
    fn logarithms_are_normal_within_the_limits() {
        let (mu, sigma) = (12.0, 2.0);
        let values = drawn(Law::LogNormal { mu, sigma, limits: (1.0, 1e12) });
        let within = |deviations: f64| {
            let inside = |x: &&f64| (x.ln() - mu).abs() <= deviations * sigma;
            values.iter().filter(inside).count() as f64 / DRAWS as f64
        };
        for (deviations, share) in [(0.5, 0.382_925), (1.0, 0.682_689), (2.0, 0.954_500), (3.0, 0.997_300)] {
            let tolerance = 5.0 * (share * (1.0 - share) / DRAWS as f64).sqrt();
            assert!((within(deviations) - share).abs() <= tolerance, "{deviations}: {}", within(deviations));
        }
        let mean = values.iter().map(|x| x.ln()).sum::<f64>() / DRAWS as f64;
        assert!((mean - mu).abs() <= 5.0 * sigma / (DRAWS as f64).sqrt(), "{mean}");
        let narrow = drawn(Law::LogNormal { mu, sigma, limits: (1e5, 2e5) });
        assert!(narrow[0] >= 1e5 && narrow[DRAWS - 1] <= 2e5);
    }
}
