//! Which epochs are refused: of whole volumes, and of single stripes whose logs have moved since.

use std::collections::BTreeMap;

use kintsu_dag::StripeId;

/// What a fence is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The volume.
    pub volume: u64,
    /// One of its stripes; `None`: all.
    pub stripe: Option<StripeId>,
}

/// For each volume and stripe the oldest epoch that is accepted. Memory: an entry for each volume, and one for each stripe
/// that was fenced since its whole volume was.
#[derive(Debug, Default, Clone)]
pub(super) struct Fences(BTreeMap<u64, OfVolume>);

#[derive(Debug, Default, Clone)]
struct OfVolume {
    whole: u64,
    /// Newer than `whole`.
    stripes: BTreeMap<StripeId, u64>,
}

impl Fences {
    /// The oldest epoch that is accepted; 0 if all are.
    pub fn least(&self, Scope { volume, stripe }: Scope) -> u64 {
        let Some(of) = self.0.get(&volume) else { return 0 };
        let newer = stripe.and_then(|stripe| of.stripes.get(&stripe));
        newer.copied().unwrap_or(of.whole)
    }

    /// Epochs before this one are refused from now on; older fences change nothing.
    pub fn raise(&mut self, Scope { volume, stripe }: Scope, epoch: u64) {
        let of = self.0.entry(volume).or_default();
        match stripe {
            Some(stripe) if epoch > of.whole => {
                let fence = of.stripes.entry(stripe).or_default();
                *fence = epoch.max(*fence);
            }
            Some(_) => {}
            None => {
                of.whole = of.whole.max(epoch);
                let whole = of.whole;
                of.stripes.retain(|_, fence| *fence > whole);
            }
        }
    }

    /// Refuses all epochs that were accepted until now, as far as they are known.
    pub fn raise_all(&mut self) {
        for of in self.0.values_mut() {
            of.whole += 1;
            of.stripes.values_mut().for_each(|fence| *fence += 1);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (Scope, u64)> {
        self.0.iter().flat_map(|(&volume, of)| {
            let stripes =
                of.stripes.iter().map(move |(&id, &epoch)| (Scope { volume, stripe: Some(id) }, epoch));
            std::iter::once((Scope { volume, stripe: None }, of.whole)).chain(stripes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_fenced_alone_until_its_volume_is_fenced_later() {
        let scope = |volume, stripe: Option<u64>| Scope { volume, stripe: stripe.map(StripeId) };
        let mut fences = Fences::default();
        fences.raise(scope(1, Some(7)), 5);
        fences.raise(scope(1, Some(7)), 4);
        let least = |fences: &Fences| {
            [(1, Some(7)), (1, Some(8)), (1, None), (2, Some(7))].map(|(v, s)| fences.least(scope(v, s)))
        };
        assert_eq!(least(&fences), [5, 0, 0, 0]);
        fences.raise(scope(1, None), 3);
        assert_eq!(least(&fences), [5, 3, 3, 0]);
        fences.raise(scope(1, Some(8)), 2);
        assert_eq!((least(&fences), fences.all().count()), ([5, 3, 3, 0], 2));
        fences.raise_all();
        assert_eq!((least(&fences), fences.all().count()), ([6, 4, 4, 0], 2));
        fences.raise(scope(1, None), 6);
        assert_eq!((least(&fences), fences.all().count()), ([6, 6, 6, 0], 1));
    }
}
