//! Random choices of the rollback test, from a pseudo-random generator with a printed seed.

/// Environment variable that sets the seed.
const SEED: &str = "TIDEGATE_SEED";
/// Default seed, fixed so that runs are reproducible.
const SEED_DEFAULT: u64 = 6;

pub(crate) struct Dice {
    pub(crate) seed: u64,
    state: u64,
}

impl Dice {
    /// Creates the generator with the seed in the environment variable, or else the default one, and prints
    /// the seed.
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var(SEED).map_or(SEED_DEFAULT, |text| text.parse().unwrap());
        println!("{SEED}={seed}");
        Self { seed, state: seed }
    }

    /// Returns a pseudo-random number below `sides`, from a linear congruential generator with Knuth's
    /// constants.
    pub(crate) fn roll(&mut self, sides: u16) -> u16 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u16::try_from((self.state >> 33) % u64::from(sides)).unwrap()
    }

    pub(crate) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[usize::from(self.roll(u16::try_from(all.len()).unwrap()))]
    }

    pub(crate) fn shuffled<'a, T>(&mut self, all: &'a [T]) -> Vec<&'a T> {
        let mut all: Vec<_> = all.iter().collect();
        for last in (1..all.len()).rev() {
            all.swap(last, usize::from(self.roll(u16::try_from(last + 1).unwrap())));
        }
        all
    }
}
